// The parts of the reader; `read_ptx` alone uses it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/reader/cursor.hpp"
#include "ptx/reader/scopes.hpp"
#include "ptx/reader/source.hpp"

namespace simulate_gpus::ptx {

class Parser {
 public:
  explicit Parser(std::string_view text) : cursor_(tokens_of(text)) {}
  Source read();

 private:
  // parser.cpp
  void directive();
  void function(bool is_extern);
  void function_directives(Function& function);
  void body(Function& function);
  void statement_or_declaration(Function& function);
  void location();

  // statements.cpp
  Statement statement();
  void labelled(Function& function);
  Operand operand(bool in_call);
  Operand address();
  Operand number();
  std::vector<Operand> parts_until(std::string_view end, bool in_call);

  // declarations.cpp
  VariableDeclaration variable(bool is_parameter);
  void qualifiers(VariableDeclaration& variable, std::size_t& elements);
  void dimensions(VariableDeclaration& variable, std::size_t element_bytes);
  void initial_values(VariableDeclaration& variable);
  void initial_value(VariableDeclaration& variable, std::size_t& offset);
  void initial_list(VariableDeclaration& variable, std::size_t& offset, std::size_t level);
  void initial_reference(VariableDeclaration& variable, std::size_t offset);
  std::vector<VariableDeclaration> parameters(Function& function);
  void registers();
  Type type_of_word(std::string_view word);
  std::uint64_t count(std::uint64_t most);

  Cursor cursor_;
  Source source_ = {};
  std::optional<Scopes> scopes_ = {};
  Place place_ = {};
  int depth_ = 0;  // of the operand that is being read
  std::vector<std::size_t> dimensions_ =
      {};  // of the variable that is being read: bytes of an element of each level
};

}  // namespace simulate_gpus::ptx
