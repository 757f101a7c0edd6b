// The registers of a kernel that is lowered: first each has its own place; at the end those share one of which only one is
// needed at a time, and what is the same for all blocks is computed apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ptx/execution/instruction.hpp"

namespace simulate_gpus::ptx {

class RegisterFile {
 public:
  Slot add(std::size_t bytes);
  std::size_t bytes() const { return bytes_; }
  void may_share(Slot slot) { sharing_.insert(slot); }       // its place: a register of PTX
  void mark_steady(Slot slot) { steady_.insert(slot); }      // the same for all blocks of a launch
  void note_result(Slot slot) { results_.push_back(slot); }  // of the statement that is lowered
  // The statement has become the program's instructions from this one on.
  void end_statement(const Program& program, std::size_t first_instruction);

  // Moves steady instructions out of the code. Where each instruction is then, or the next one; and the end.
  std::vector<std::int32_t> separate_steady(Program& program);
  void allocate(Program& program) const;

 private:
  struct Writes {
    int statements = 0;
    std::size_t first = 0;  // the instruction, where it is all of its statement
  };

  std::size_t bytes_ = 0;
  std::map<Slot, std::size_t> sizes_ = {};
  std::unordered_set<Slot> sharing_ = {}, steady_ = {};
  std::vector<Slot> results_ = {};
  std::unordered_map<Slot, Writes> writes_ = {};
  // What instructions write that may be steady.
  std::unordered_map<std::size_t, Slot> candidates_ = {};
};

}  // namespace simulate_gpus::ptx
