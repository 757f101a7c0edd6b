#include "ptx/reader/tokens.hpp"

#include "ptx/ptx.hpp"

namespace simulate_gpus::ptx {
namespace {

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_of_word(char c) {
  return is_letter_or_digit(c) || c == '_' || c == '$' || c == '.' || c == '%';
}

// The end of the word that begins there.
std::size_t end_of_word(std::string_view text, std::size_t begin) {
  const bool is_number = is_digit(text[begin]);
  bool has_dot = false;
  std::size_t end = begin;
  if (text[begin] == '.') ++end;  // a directive ends where the next one begins: .reg.b16
  while (end < text.size()) {
    const char c = text[end];
    if (c == '.' && text[begin] == '.') break;
    const bool is_exponent = is_number && has_dot && (c == '+' || c == '-') &&
                             (text[end - 1] == 'e' || text[end - 1] == 'E');
    if (is_of_word(c) || is_exponent) {
      has_dot |= c == '.';
      ++end;
    } else if (c == ':' && end + 2 < text.size() && text[end + 1] == ':') {
      end += 2;
    } else {
      break;
    }
  }
  return end;
}

}  // namespace

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> tokens;
  int line = 1;
  const auto end_of = [&](std::string_view what, std::size_t from) {
    const std::size_t end = text.find(what, from);
    if (end == std::string_view::npos)
      throw Error(Kind::invalid_ptx, "PTX line " + std::to_string(line) + ": no " +
                                         std::string(what) + " until the end of the text");
    return end + what.size();
  };
  std::size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '\n') ++line;
    if (c == '\0' || c == ' ' || (c >= '\t' && c <= '\r')) {
      ++at;
    } else if (text.substr(at, 2) == "//") {
      at = std::min(text.find('\n', at), text.size());
    } else if (text.substr(at, 2) == "/*") {
      const std::size_t end = end_of("*/", at + 2);
      for (; at < end; ++at) line += text[at] == '\n';
    } else {
      const std::size_t end = c == '"'        ? end_of("\"", at + 1)
                              : is_of_word(c) ? end_of_word(text, at)
                                              : at + 1;
      tokens.push_back({text.substr(at, end - at), line});
      at = end;
    }
  }
  return tokens;
}

}  // namespace simulate_gpus::ptx
