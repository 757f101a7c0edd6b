// Values that are the same for all blocks of a launch: of numbers, parameters, %tid, %ntid and what is computed from them
// alone. Their instructions run once for each warp, before its first block.
#include <algorithm>
#include <array>

#include "ptx/lowering/register_file.hpp"
#include "ptx/reader/source.hpp"

namespace simulate_gpus::ptx {
namespace {

constexpr std::size_t no_instruction = ~std::size_t{0};

// Each has one result, which depends on its operands alone, and cannot fail.
constexpr std::array<std::string_view, 27> pure_opcodes = {
    "abs", "add", "and",  "bfe", "bfi",  "cvt", "cvta", "div", "fma",
    "ld",  "mad", "max",  "min", "mov",  "mul", "neg",  "not", "or",
    "rcp", "rem", "selp", "set", "setp", "shl", "shr",  "sub", "xor"};

bool reads_parameter(const Instruction& instruction, std::size_t parameter_bytes) {
  const auto offset = static_cast<std::uint64_t>(instruction.immediate);
  return instruction.space == Space::parameter && instruction.mode == same_for_all &&
         offset < parameter_bytes && instruction.bytes <= parameter_bytes - offset &&
         offset % instruction.bytes == 0;
}

// Of an instruction that is all of its statement, and has one result.
bool may_be_steady(const Instruction& instruction, std::size_t parameter_bytes) {
  const Statement& statement = *instruction.statement;
  if (statement.guard >= 0 || instruction.flow != Flow::plain) return false;
  if (std::ranges::find(statement.modifiers, "cc") != statement.modifiers.end()) return false;
  if (std::ranges::find(pure_opcodes, statement.opcode) == pure_opcodes.end()) return false;
  return statement.opcode != "ld" || reads_parameter(instruction, parameter_bytes);
}

}  // namespace

void RegisterFile::end_statement(const Program& program, std::size_t first_instruction) {
  const bool is_one = program.code.size() == first_instruction + 1;
  if (is_one && results_.size() == 1 && may_be_steady(program.code.back(), program.parameter_bytes))
    candidates_[first_instruction] = results_[0];
  for (const Slot slot : results_) {
    Writes& writes = writes_[slot];
    if (++writes.statements == 1) writes.first = is_one ? first_instruction : no_instruction;
  }
  results_.clear();
}

std::vector<std::int32_t> RegisterFile::separate_steady(Program& program) {
  std::vector<Instruction> varying;
  std::vector<std::int32_t> places;
  for (std::size_t k = 0; k < program.code.size(); ++k) {
    places.push_back(static_cast<std::int32_t>(varying.size()));
    Instruction& instruction = program.code[k];
    const auto candidate = candidates_.find(k);
    const Slot result = candidate == candidates_.end() ? no_slot : candidate->second;
    const bool is_steady = result != no_slot && writes_[result].statements == 1 &&
                           std::ranges::all_of(instruction.slots, [&](Slot slot) {
                             return slot == no_slot || slot == result || steady_.contains(slot);
                           });
    if (is_steady &&  // and does not read its own result
        std::ranges::count(instruction.slots, result) == 1) {
      steady_.insert(result);
      program.steady.push_back(std::move(instruction));
    } else {
      varying.push_back(std::move(instruction));
    }
  }
  places.push_back(static_cast<std::int32_t>(varying.size()));
  program.code = std::move(varying);
  for (auto& [slot, writes] : writes_)
    if (writes.first != no_instruction)
      writes.first = static_cast<std::size_t>(places[writes.first]);
  return places;
}

}  // namespace simulate_gpus::ptx
