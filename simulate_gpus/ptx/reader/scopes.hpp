// Which register, variable or label a name means: those of inner blocks hide those of outer ones.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptx/reader/source.hpp"

namespace simulate_gpus::ptx {

class Scopes {
 public:
  explicit Scopes(Function& function) : function_(&function) {}

  void open();
  void close();  // labels that the block's statements name and that it declares get its number
  std::size_t depth() const { return open_.size(); }

  void declare_register(std::string_view name, Type type, int parts);
  void declare_range(std::string_view prefix, Type type, int parts, std::uint64_t count);
  std::string declare_variable(std::string_view name);  // its name within the function
  std::string declare_label(std::string_view name);

  // A register, a vector of them, or a symbol.
  Operand operand_named(std::string_view name);

 private:
  struct Register {
    Type type = Type::none;
    int parts = 1;   // 2 or 4 of a vector
    int first = -1;  // its number, once it is used
  };
  struct Range {
    Type type = Type::none;
    int parts = 1;
    std::uint64_t count = 0;
  };
  struct Scope {
    std::unordered_map<std::string, Register> registers;
    std::unordered_map<std::string, Range> ranges;
    std::unordered_map<std::string, std::string> variables, labels;
    std::size_t first_statement = 0;
    int number = 0;
  };

  Register* find_register(std::string_view name);
  Operand use(Register& found, std::string_view selector);
  void rename_labels(const Scope& scope);

  Function* function_;
  std::vector<Scope> open_;
  int blocks_ = 0;
};

}  // namespace simulate_gpus::ptx
