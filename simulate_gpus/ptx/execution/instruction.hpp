// A lowered instruction, and the kernel that it is part of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ptx/execution/formats.hpp"
#include "ptx/execution/lanes.hpp"
#include "ptx/ptx.hpp"
#include "ptx/reader/source.hpp"

namespace simulate_gpus::ptx {

struct Warp;
struct Instruction;
// Does the instruction for the lanes of the mask, of which there is at least one.
using Handler = void (*)(Warp&, const Instruction&, Mask);

enum class Flow : std::uint8_t {
  plain,
  branch,          // to targets[0]
  indexed_branch,  // to targets[slots[0]]
  exit,
  barrier,   // of the block
  together,  // waits for the lanes of the mask in slots[0], then runs
  meet,      // the same, and lanes may wait at another such instruction: bar.warp.sync
  pause,     // runs, then it is another warp's turn
};

// Modifiers that the semantics of several instructions share.
struct Rules {
  Rounding rounding = Rounding::nearest;
  bool ftz = false, sat = false, relu = false;
  bool nan = false;          // .NaN: a NaN in, a NaN out
  bool xorsign_abs = false;  // the magnitude of the smaller or larger, with the product's sign
  bool to_integer = false;   // .rni and its like
};

constexpr std::uint8_t same_for_all = 1;  // mode of a load: its address is no register's

enum class Combination : std::uint8_t {
  none,
  conjunction,
  disjunction,
  exclusive
};  // of predicates

struct Instruction {
  Handler run = nullptr;
  std::vector<Slot> slots = {};
  Flow flow = Flow::plain;
  Space space = Space::generic;
  Rules rules = {};
  Combination combination = Combination::none;
  Slot guard = no_slot;
  bool guard_negated = false;
  bool negated = false;          // a predicate that is read
  bool is_wide_address = false;  // 64 bits
  std::uint8_t mode = 0, count = 0;
  std::uint8_t bytes = 0;  // of an access, all of its parts
  Type type = Type::none, other_type = Type::none;
  std::int64_t immediate = 0, second_immediate = 0;
  std::vector<std::int32_t> targets = {};
  std::int32_t plain_count = 0;  // of plain instructions from this one on
  std::int32_t line = 0;
  Place place = {};
  const Statement* statement = nullptr;
};

using SpecialFunction = std::uint64_t (*)(const Warp& warp, int lane);
struct Special {  // a register that is filled when a block begins, or before the first one
  SpecialFunction value = nullptr;
  Slot slot = no_slot;
  bool is_wide = false;
  bool is_steady = true;  // the same for all blocks; others are the same for all threads of one
};

struct Program {
  std::string kernel = {};
  std::vector<Instruction> code = {};
  std::vector<Instruction> steady = {};  // run once for each warp: see lowering/steady_values.cpp
  std::vector<std::pair<Slot, std::uint64_t>> constants = {}, wide_constants = {};
  std::vector<Special> specials = {};
  std::size_t register_bytes = 0, local_bytes = 0, shared_bytes = 0;
  std::uint32_t register_count = 0;
  std::vector<Parameter> parameters = {};
  std::size_t parameter_bytes = 0;
};

}  // namespace simulate_gpus::ptx
