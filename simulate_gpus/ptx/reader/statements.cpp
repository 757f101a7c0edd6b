#include <bit>
#include <charconv>

#include "ptx/reader/parser.hpp"

namespace simulate_gpus::ptx {
namespace {

std::vector<std::string> split_at_dots(std::string_view text) {
  std::vector<std::string> words;
  while (true) {
    const std::size_t dot = std::min(text.find('.'), text.size());
    words.emplace_back(text.substr(0, dot));
    if (dot == text.size()) return words;
    text.remove_prefix(dot + 1);
  }
}

bool read_hexadecimal(std::string_view digits, std::uint64_t& bits) {
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits, 16);
  return error == std::errc() && end == digits.data() + digits.size();
}

// 0f3F800000, 0d3FF0000000000000, 1.5
bool read_float(std::string_view word, Operand& number) {
  const char kind = word.size() > 2 && word[0] == '0' ? word[1] : ' ';
  number.is_float = true;
  if ((kind == 'f' || kind == 'F') && word.size() == 10) {
    std::uint64_t bits = 0;
    if (!read_hexadecimal(word.substr(2), bits)) return false;
    number.is_single = true;
    number.single = static_cast<std::uint32_t>(bits);
    number.bits =
        std::bit_cast<std::uint64_t>(static_cast<double>(std::bit_cast<float>(number.single)));
    return true;
  }
  if ((kind == 'd' || kind == 'D') && word.size() == 18)
    return read_hexadecimal(word.substr(2), number.bits);
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  number.bits = std::bit_cast<std::uint64_t>(value);
  return error == std::errc() && end == word.data() + word.size() &&
         word.find('.') != std::string_view::npos;
}

}  // namespace

std::string Statement::text() const {
  std::string all = opcode;
  for (const std::string& modifier : modifiers) all += "." + modifier;
  return all;
}

Statement Parser::statement() {
  Statement read;
  read.line = cursor_.line();
  read.place = place_;
  if (cursor_.take("@")) {
    read.guard_negated = cursor_.take("!");
    const Operand guard = scopes_->operand_named(cursor_.next());
    if (guard.kind != Operand::Kind::reg) cursor_.fail("a guard that is no register");
    read.guard = guard.reg;
  }
  read.modifiers = split_at_dots(cursor_.next());
  read.opcode = read.modifiers.front();
  read.modifiers.erase(read.modifiers.begin());
  if (cursor_.take(";")) return read;
  do {
    read.operands.push_back(operand(read.opcode == "call"));
  } while (cursor_.take(","));
  cursor_.expect(";");
  return read;
}

// A label, or one of the lists that have a name.
void Parser::labelled(Function& function) {
  Statement label;
  label.line = cursor_.line();
  label.label = scopes_->declare_label(cursor_.next());
  cursor_.expect(":");
  if (cursor_.take(".branchtargets")) {
    std::vector<std::string>& targets = function.branch_targets[label.label];
    targets.clear();
    do {
      targets.emplace_back(cursor_.next());
    } while (cursor_.take(","));
    cursor_.expect(";");
  } else if (cursor_.peek() == ".callprototype" || cursor_.peek() == ".calltargets") {
    cursor_.skip_past(";");
  } else {
    function.body.push_back(std::move(label));
  }
}

std::vector<Operand> Parser::parts_until(std::string_view end, bool in_call) {
  std::vector<Operand> parts;
  if (cursor_.take(end)) return parts;
  do {
    if (++depth_ > 8) cursor_.fail("too many operands within each other");
    parts.push_back(operand(in_call));
    --depth_;
    if (parts.size() > 1000) cursor_.fail("too many operands");
  } while (cursor_.take(","));
  cursor_.expect(end);
  return parts;
}

Operand Parser::operand(bool in_call) {
  Operand read;
  if (cursor_.take("{")) {
    read.kind = Operand::Kind::vector;
    read.parts = parts_until("}", false);
    return read;
  }
  if (cursor_.peek() == "[") return address();
  if (in_call && cursor_.take("(")) {
    read.kind = Operand::Kind::list;
    read.parts = parts_until(")", false);
    return read;
  }
  if (cursor_.peek() == "!" && cursor_.peek(1).starts_with('%')) {
    cursor_.next();
    read = scopes_->operand_named(cursor_.next());
    read.negated = true;
    return read;
  }
  if (cursor_.at_integer()) return number();
  read = scopes_->operand_named(cursor_.next());
  if (read.kind == Operand::Kind::symbol && (cursor_.peek() == "+" || cursor_.peek() == "-"))
    read.offset = static_cast<std::int64_t>(cursor_.integer());
  if (cursor_.take("|")) {
    const Operand second = scopes_->operand_named(cursor_.next());
    read.second = second.kind == Operand::Kind::sink ? -2 : second.reg;
    if (second.kind != Operand::Kind::reg && second.kind != Operand::Kind::sink)
      cursor_.fail("a second result that is no register");
  }
  return read;
}

Operand Parser::number() {
  Operand read;
  read.kind = Operand::Kind::number;
  const bool is_negative = cursor_.peek() == "-";
  const std::string_view word = cursor_.peek(is_negative ? 1 : 0);
  if (read_float(word, read)) {
    if (is_negative) cursor_.next();
    cursor_.next();
    if (is_negative) {
      read.bits ^= std::uint64_t{1} << 63;
      read.single ^= std::uint32_t{1} << 31;
    }
    return read;
  }
  read = {};
  read.kind = Operand::Kind::number;
  read.bits = cursor_.integer();
  return read;
}

// [base+offset], [offset]; of tensors and such [base, {..}], which is not offered where it is used.
Operand Parser::address() {
  Operand read;
  read.kind = Operand::Kind::address;
  cursor_.expect("[");
  if (cursor_.at_integer()) {
    read.offset = static_cast<std::int64_t>(cursor_.integer());
  } else {
    read.parts.push_back(scopes_->operand_named(cursor_.next()));
    if (cursor_.at_integer()) read.offset = static_cast<std::int64_t>(cursor_.integer());
  }
  while (cursor_.take(",")) {
    if (++depth_ > 8) cursor_.fail("too many operands within each other");
    read.parts.push_back(operand(false));
    --depth_;
  }
  cursor_.expect("]");
  return read;
}

}  // namespace simulate_gpus::ptx
