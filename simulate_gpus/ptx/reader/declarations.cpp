#include <bit>

#include "ptx/reader/parser.hpp"

namespace simulate_gpus::ptx {
namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 36;  // of a variable: no GPU has more
constexpr std::size_t most_initial_bytes = std::size_t{1} << 28;

Space space_named(std::string_view word) {
  if (word == ".global") return Space::global;
  if (word == ".const") return Space::constant;
  if (word == ".shared") return Space::shared;
  if (word == ".local") return Space::local;
  if (word == ".param") return Space::parameter;
  return Space::generic;
}

void put_bytes(VariableDeclaration& variable, std::size_t offset, std::uint64_t bits,
               std::size_t bytes) {
  if (variable.initial.size() < offset + bytes) variable.initial.resize(offset + bytes);
  for (std::size_t k = 0; k < bytes; ++k)
    variable.initial[offset + k] = static_cast<std::uint8_t>(bits >> (8 * k));
}

}  // namespace

std::uint64_t Parser::count(std::uint64_t most) {
  const std::uint64_t value = cursor_.integer();
  if (value > most) cursor_.fail("the number " + std::to_string(value) + " is too large");
  return value;
}

Type Parser::type_of_word(std::string_view word) {
  const Type type = word.starts_with('.') ? type_named(word.substr(1)) : Type::none;
  if (type == Type::none) cursor_.fail("no type: " + std::string(word.substr(0, 60)));
  return type;
}

// .global .align 4 .b8 name[12] = {..}
VariableDeclaration Parser::variable(bool is_parameter) {
  VariableDeclaration read;
  read.line = cursor_.line();
  read.space = space_named(cursor_.next());
  if (read.space == Space::generic) cursor_.fail("not understood as a declaration");
  std::size_t elements = 1;
  read.type = Type::none;
  qualifiers(read, elements);
  if (read.type == Type::none || read.type == Type::pred)
    cursor_.fail("a variable without a type for memory");
  const std::size_t element_bytes = elements * bytes_of(read.type);
  read.alignment = std::max(read.alignment, element_bytes);
  read.bytes = element_bytes;
  read.name = scopes_ ? scopes_->declare_variable(cursor_.next()) : std::string(cursor_.next());
  dimensions(read, element_bytes);
  if (cursor_.take("=")) initial_values(read);
  if (is_parameter && read.bytes == 0) read.bytes = element_bytes;
  return read;
}

void Parser::qualifiers(VariableDeclaration& read, std::size_t& elements) {
  bool is_of_target = false;  // behind .ptr: what the pointer points to
  while (cursor_.peek().starts_with('.')) {
    const std::string_view word = cursor_.next();
    if (word == ".align") {
      const auto alignment = static_cast<std::size_t>(count(1 << 20));
      if (!std::has_single_bit(alignment)) cursor_.fail("an alignment that is no power of two");
      if (!is_of_target) read.alignment = alignment;
    } else if (word == ".v2" || word == ".v4") {
      elements = word == ".v2" ? 2 : 4;
    } else if (word == ".attribute") {
      cursor_.skip_past(")");
    } else if (word == ".texref" || word == ".samplerref" || word == ".surfref") {
      cursor_.refuse(std::string(word) + ", of textures and surfaces,");
    } else if (word == ".ptr") {
      is_of_target = true;
    } else if (space_named(word) == Space::generic) {
      read.type = type_of_word(word);
    }
  }
}

void Parser::dimensions(VariableDeclaration& read, std::size_t element_bytes) {
  std::vector<std::size_t> sizes;
  while (cursor_.take("[")) {
    sizes.push_back(cursor_.peek() == "]" ? 0 : static_cast<std::size_t>(count(most_bytes)));
    cursor_.expect("]");
    if (sizes.size() > 16) cursor_.fail("too many dimensions");
  }
  dimensions_.assign(1, element_bytes);
  for (std::size_t k = sizes.size(); k-- > 0;) {
    read.bytes = read.bytes * sizes[k];
    if (read.bytes > most_bytes) cursor_.fail(read.name + " is too large");
    if (k > 0) dimensions_.push_back(read.bytes);
  }
}

void Parser::initial_values(VariableDeclaration& read) {
  std::size_t offset = 0;
  if (cursor_.take("{"))
    initial_list(read, offset, dimensions_.size());
  else
    initial_value(read, offset);
  if (read.bytes == 0) read.bytes = offset;
  if (offset > read.bytes || read.initial.size() > read.bytes)
    cursor_.fail(read.name + " has more initial values than places");
}

// What a list leaves out is zero; a list within it begins where its row does.
void Parser::initial_list(VariableDeclaration& read, std::size_t& offset, std::size_t level) {
  const std::size_t begin = offset;
  const std::size_t row = level > 0 && level < dimensions_.size() + 1 ? dimensions_[level - 1] : 0;
  std::size_t rows = 0;
  while (!cursor_.take("}")) {
    if (cursor_.take("{")) {
      if (level < 2) cursor_.fail("a list within too many lists");
      offset = begin + rows * row;
      initial_list(read, offset, level - 1);
      offset = begin + ++rows * row;
    } else {
      initial_value(read, offset);
    }
    if (read.bytes != 0 && offset > read.bytes)
      cursor_.fail(read.name + " has more initial values than places");
    if (!cursor_.take(",") && cursor_.peek() != "}") cursor_.expect("}");
  }
}

void Parser::initial_value(VariableDeclaration& read, std::size_t& offset) {
  const std::size_t bytes = bytes_of(read.type);
  if (offset > most_initial_bytes) cursor_.fail("too many initial values of " + read.name);
  if (cursor_.at_integer()) {
    const Operand value = number();
    std::uint64_t bits = value.bits;
    if (value.is_float && read.type == Type::f32) {
      bits = value.is_single
                 ? value.single
                 : std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
    }
    put_bytes(read, offset, bits, std::min<std::size_t>(bytes, 8));
  } else {
    initial_reference(read, offset);
  }
  offset += bytes;
}

// name, name+4, generic(name), 0xFF00(name): a byte of the address
void Parser::initial_reference(VariableDeclaration& read, std::size_t offset) {
  VariableDeclaration::Reference reference;
  reference.offset = offset;
  reference.bytes = bytes_of(read.type);
  std::string_view word = cursor_.next();
  const bool has_parentheses = word == "generic" && cursor_.take("(");
  if (has_parentheses) word = cursor_.next();
  reference.name = word;
  if (cursor_.peek() == "+" || cursor_.peek() == "-")
    reference.added = static_cast<std::int64_t>(cursor_.integer());
  if (has_parentheses) {
    cursor_.expect(")");
    if (cursor_.peek() == "+" || cursor_.peek() == "-")  // generic(name)+4
      reference.added += static_cast<std::int64_t>(cursor_.integer());
  }
  if (reference.bytes != 8) cursor_.refuse("an address in a variable of fewer than 64 bits");
  put_bytes(read, offset, 0, 8);
  read.references.push_back(std::move(reference));
}

std::vector<VariableDeclaration> Parser::parameters(Function& function) {
  std::vector<VariableDeclaration> list;
  cursor_.expect("(");
  while (!cursor_.take(")")) {
    if (cursor_.take(".reg")) {
      VariableDeclaration in_register;
      in_register.type = type_of_word(cursor_.next());
      in_register.name = cursor_.next();
      scopes_->declare_register(in_register.name, in_register.type, 1);
      in_register.reg = scopes_->operand_named(in_register.name).reg;
      list.push_back(std::move(in_register));
    } else {
      list.push_back(variable(true));
    }
    if (list.size() > 10000) cursor_.fail("too many parameters of " + function.name);
    if (!cursor_.take(",") && cursor_.peek() != ")") cursor_.expect(")");
  }
  return list;
}

void Parser::registers() {
  cursor_.expect(".reg");
  std::string_view word = cursor_.next();
  int parts = 1;
  if (word == ".v2" || word == ".v4") {
    parts = word == ".v2" ? 2 : 4;
    word = cursor_.next();
  }
  const Type type = type_of_word(word);
  do {
    const std::string_view name = cursor_.next();
    if (cursor_.take("<")) {
      scopes_->declare_range(name, type, parts, count(100'000'000));
      cursor_.expect(">");
    } else {
      scopes_->declare_register(name, type, parts);
    }
  } while (cursor_.take(","));
  cursor_.expect(";");
}

}  // namespace simulate_gpus::ptx
