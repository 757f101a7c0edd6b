// What a PTX text says: functions of statements, and variables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ptx/reader/types.hpp"

namespace simulate_gpus::ptx {

enum class Space : std::uint8_t { generic, global, constant, shared, local, parameter };

struct Operand {
  enum class Kind : std::uint8_t {
    none,
    reg,      // reg: its number within the function
    symbol,   // name: of a variable, a function, a label, a special register
    number,   // bits
    vector,   // parts: {a, b}
    list,     // parts: (a, b)
    address,  // parts[0] is the base, or there is none; offset
    sink,     // _
  };
  Kind kind = Kind::none;
  int reg = -1;
  int second = -1;  // of a|b: the register b; -2 if b is _
  bool negated = false;
  bool is_float = false;     // of a number: 0f, 0d, 1.5; its bits are those of a double
  std::uint32_t single = 0;  // of 0f: its bits
  bool is_single = false;
  std::uint64_t bits = 0;
  std::int64_t offset = 0;  // also of a symbol: name+4
  std::string name = {};
  std::string selector = {};  // of video instructions: b0, h1
  std::vector<Operand> parts = {};
};

struct Place {  // in the source that the PTX was made of
  int file = 0, line = 0;
};

struct Statement {
  std::string label = {};  // a label, and nothing else
  std::string opcode = {};
  std::vector<std::string> modifiers = {};
  std::vector<Operand> operands = {};
  int guard = -1;
  bool guard_negated = false;
  int line = 0;
  Place place = {};

  std::string text() const;  // "ld.global.f32"
};

struct VariableDeclaration {
  struct Reference {  // an address that is known when the module is loaded
    std::size_t offset = 0;
    std::string name = {};
    std::int64_t added = 0;
    std::size_t bytes = 8;
  };
  std::string name = {};
  Space space = Space::global;
  Type type = Type::b8;
  int reg = -1;  // of a parameter in a register
  std::size_t alignment = 1, bytes = 0;
  bool is_extern = false;
  int line = 0;
  std::vector<std::uint8_t> initial = {};
  std::vector<Reference> references = {};
};

struct Function {
  std::string name = {};
  bool is_entry = false, has_body = false;
  std::vector<VariableDeclaration> results = {}, parameters = {}, variables = {};
  std::vector<Statement> body = {};
  std::vector<Type> registers = {};  // by their number
  std::map<std::string, std::vector<std::string>> branch_targets = {};
  std::uint32_t max_threads = 0;
  std::uint32_t required_threads[3] = {0, 0, 0};
  std::string refused = {};  // a directive that is not offered
  int line = 0;
};

struct Source {
  std::map<std::string, Function> functions = {};
  std::map<std::string, VariableDeclaration> variables = {};
  std::map<int, std::string> files = {};
  std::uint32_t version = 0, target = 0;
};

}  // namespace simulate_gpus::ptx
