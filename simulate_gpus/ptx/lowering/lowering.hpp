// Makes a kernel's statements instructions, each with its handler and the slots of its operands. Calls are inlined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ptx/execution/instruction.hpp"
#include "ptx/lowering/register_file.hpp"
#include "ptx/reader/source.hpp"

namespace simulate_gpus::ptx {

using Addresses =
    std::map<std::string, std::uint64_t>;  // of variables in global and constant memory

// Throws: Error, which names kernel, instruction and line.
Program lower_kernel(const Source& source, const Addresses& addresses, const std::string& kernel);

struct SymbolPlace {
  Space space = Space::global;
  std::uint64_t address = 0;  // in its space
};

class Lowering {
 public:
  Lowering(const Source& source, const Addresses& addresses, const Function& kernel);
  Program run();

  // The statement that is being lowered.
  const Statement& statement() const { return *statement_; }
  const std::string& opcode() const { return statement_->opcode; }
  std::size_t operand_count() const { return statement_->operands.size(); }
  const Operand& operand(std::size_t number) const;
  void expect_operands(std::size_t least, std::size_t most) const;
  bool in_device_function() const { return frames_.size() > 1; }

  // Its modifiers; those that nobody takes are refused.
  bool take(std::string_view modifier);
  std::string_view take_one_of(std::initializer_list<std::string_view> modifiers);  // empty: none
  bool has(std::string_view modifier) const;
  Type take_type();  // the first that is left
  Type take_last_type();
  Type last_type() const;    // without taking it
  std::string take_any();    // the first that is left; empty: none
  Rounding take_rounding();  // nearest, if there is none
  void ignore(std::initializer_list<std::string_view> modifiers);
  [[noreturn]] void refuse(const std::string& why = "") const;
  [[noreturn]] void invalid(const std::string& why) const;

  // Slots of operands. Registers must be as wide as the type.
  Slot source(const Operand& operand, Type type);
  Slot source(std::size_t number, Type type) { return source(operand(number), type); }
  Slot target(const Operand& operand, Type type);  // of _ one that nobody reads
  Slot target(std::size_t number, Type type) { return target(operand(number), type); }
  Slot second_target(std::size_t number, Type type);  // of d|p; no_slot, if there is none
  Slot predicate(const Operand& operand);             // to read
  Slot constant(std::uint64_t bits, bool is_wide);
  Slot temporary(std::size_t bits);
  Slot special(const std::string& name, bool is_wide);
  Slot carry();  // the register that add.cc sets
  std::size_t register_bits(const Operand& operand) const;
  // A source or a target of another width than its register: a conversion goes before, or behind (with `widen`).
  Slot narrowed_source(const Operand& operand, Type type);
  void widen(const Operand& operand, Slot from, Type type);

  SymbolPlace symbol(const Operand& operand) const;
  bool is_symbol(const Operand& operand) const;  // the address of a variable
  // Fills the instruction's space, immediate and address width; the base's slot.
  Slot address(Instruction& instruction, const Operand& operand, Space space);

  Instruction& emit(Handler handler, std::vector<Slot> slots);
  std::vector<Instruction>& code() { return program_.code; }
  Program& program() { return program_; }
  const Function& function() const { return *frames_.back().function; }

  // Flow of control.
  void branch_to_label(Instruction& instruction, const std::string& label);
  void call();
  void leave_function();  // ret

 private:
  struct Frame {
    const Function* function = nullptr;
    std::string scope;                         // before its names
    std::map<std::string, std::string> bound;  // parameters: the caller's variables
  };
  struct Fixup {
    std::size_t instruction = 0;
    std::string label;
    int line = 0;
  };

  void place_shared();
  void place_parameters();
  void place_variables(const Frame& frame);
  void body();
  void lower(const Statement& statement);
  void finish();
  Slot slot_of(int reg);
  Slot number(const Operand& operand, Type type);
  std::string variable_name(const std::string& name) const;
  std::uint64_t frame_offset(const Operand& operand) const;
  void call_builtin(const std::string& name, Handler handler, const Operand* result,
                    const std::vector<Operand>& arguments);
  void call_function(const Function& callee, const std::vector<Operand>& results,
                     const std::vector<Operand>& arguments);
  void copy_register(const Operand& from, Slot to, Type type);
  Slot result_in(Slot slot);  // notes that the statement writes it

  const Source& source_;
  const Addresses& addresses_;
  const Function& kernel_;
  Program program_ = {};
  const Statement* statement_ = nullptr;
  std::vector<bool> taken_ = {};
  std::vector<Frame> frames_ = {};
  std::map<std::pair<const Function*, int>, Slot> registers_ = {};
  std::map<std::pair<std::uint64_t, bool>, Slot> constants_ = {};
  std::map<std::pair<std::string, bool>, Slot> specials_ = {};
  std::map<std::string, std::uint64_t> shared_ = {}, frame_ = {}, parameters_ = {};
  std::map<std::string, std::int32_t> labels_ = {};
  std::vector<Fixup> fixups_ = {};
  std::uint64_t dynamic_shared_ = 0;
  Slot carry_ = no_slot;
  RegisterFile file_ = {};
  int instances_ = 0;
};

}  // namespace simulate_gpus::ptx
