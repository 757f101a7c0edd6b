#include "ptx/reader/cursor.hpp"

#include <array>
#include <charconv>

#include "ptx/ptx.hpp"

namespace simulate_gpus::ptx {

int Cursor::line() const {
  if (tokens_.empty()) return 0;
  return at_ < tokens_.size() ? tokens_[at_].line : tokens_.back().line;
}

std::string_view Cursor::peek(std::size_t ahead) const {
  return at_ + ahead < tokens_.size() ? tokens_[at_ + ahead].text : std::string_view();
}

std::string_view Cursor::next() {
  if (at_end()) fail("the text ends within a statement");
  return tokens_[at_++].text;
}

bool Cursor::take(std::string_view text) {
  if (at_end() || peek() != text) return false;
  ++at_;
  return true;
}

void Cursor::expect(std::string_view text) {
  if (!take(text))
    fail("expected " + std::string(text) + ", found " + std::string(peek().substr(0, 60)));
}

void Cursor::skip_past(std::string_view text) {
  while (next() != text) {
  }
}

void Cursor::skip_line() {
  const int here = line();
  while (!at_end() && line() == here) ++at_;
}

void Cursor::skip_braces() {
  int depth = 0;
  do {
    const std::string_view word = next();
    depth += word == "{" ? 1 : word == "}" ? -1 : 0;
  } while (depth > 0);
}

void Cursor::fail(const std::string& why) const {
  throw Error(Kind::invalid_ptx, "PTX line " + std::to_string(line()) + ": " + why);
}

void Cursor::refuse(const std::string& what) const {
  throw Error(
      Kind::not_offered,
      "PTX line " + std::to_string(line()) + ": " + what +
          " is not offered. Kernels of simulated GPUs are limited to what the README lists.");
}

bool read_integer(std::string_view word, std::uint64_t& value) {
  if (word.ends_with('U')) word.remove_suffix(1);
  int base = 10;
  if (word.size() > 1 && word[0] == '0') {
    const char kind = word[1];
    base = kind == 'x' || kind == 'X' ? 16 : kind == 'b' || kind == 'B' ? 2 : 8;
    word.remove_prefix(base == 8 ? 1 : 2);
  }
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
  return error == std::errc() && end == word.data() + word.size();
}

bool Cursor::at_integer() const {
  const std::string_view word = peek();
  return !word.empty() && ((word[0] >= '0' && word[0] <= '9') || word == "-" || word == "+" ||
                           word == "~" || word == "!" || word == "(");
}

std::uint64_t Cursor::integer() { return sum(0, 0); }

namespace {

// Of 64 bits with a sign.
std::uint64_t quotient(std::uint64_t value, std::uint64_t other) {
  const auto divisor = static_cast<std::int64_t>(other);
  if (divisor == -1) return 0 - value;
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value) / divisor);
}

}  // namespace

// Binary operators by their levels, from the loosest; all are left-associative.
std::uint64_t Cursor::sum(int level, int depth) {
  static constexpr std::array<std::string_view, 5> levels = {"|", "^", "&", "+-", "*/%"};
  if (depth > 100) fail("a number with too many parentheses");
  if (level == static_cast<int>(levels.size())) return factor(depth);
  std::uint64_t value = sum(level + 1, depth);
  while (peek().size() == 1 &&
         levels[static_cast<std::size_t>(level)].find(peek()[0]) != std::string_view::npos) {
    const char operation = next()[0];
    const std::uint64_t other = sum(level + 1, depth);
    if ((operation == '/' || operation == '%') && other == 0) fail("a number is divided by zero");
    switch (operation) {
      case '|':
        value |= other;
        break;
      case '^':
        value ^= other;
        break;
      case '&':
        value &= other;
        break;
      case '+':
        value += other;
        break;
      case '-':
        value -= other;
        break;
      case '*':
        value *= other;
        break;
      case '/':
        value = quotient(value, other);
        break;
      default:
        value -= quotient(value, other) * other;
    }
  }
  return value;
}

std::uint64_t Cursor::factor(int depth) {
  if (depth > 100) fail("a number with too many signs");
  if (take("+")) return factor(depth + 1);
  if (take("-")) return 0 - factor(depth + 1);
  if (take("~")) return ~factor(depth + 1);
  if (take("!")) return factor(depth + 1) == 0 ? 1 : 0;
  if (take("(")) {
    const std::uint64_t value = sum(0, depth + 1);
    expect(")");
    return value;
  }
  std::uint64_t value = 0;
  const std::string_view word = peek();
  if (!read_integer(word, value)) fail("not a number: " + std::string(word.substr(0, 60)));
  next();
  return value;
}

}  // namespace simulate_gpus::ptx
