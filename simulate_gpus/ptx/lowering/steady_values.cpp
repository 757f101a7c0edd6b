// Values that are the same for all blocks of a launch: of numbers, parameters, %tid, %ntid and what is computed from them
// alone. Their instructions run once for each warp, before its first block.
#include <algorithm>
#include <array>

#include "ptx/lowering/lowering.hpp"

namespace simulate_gpus::ptx {
namespace {

// Each has one result, which depends on its operands alone, and cannot fail.
constexpr std::array<std::string_view, 27> pure_opcodes = {
    "abs", "add", "and", "bfe", "bfi", "cvt",  "cvta", "div", "fma",  "ld",   "mad",  "max", "min", "mov",
    "mul", "neg", "not", "or",  "rcp", "rem",  "selp", "set", "setp", "shl",  "shr",  "sub", "xor"};

bool reads_parameter(const Instruction& instruction, std::size_t parameter_bytes) {
  const auto offset = static_cast<std::uint64_t>(instruction.immediate);
  return instruction.space == Space::parameter && offset < parameter_bytes &&
         instruction.bytes <= parameter_bytes - offset && offset % instruction.bytes == 0;
}

}  // namespace

// Whether the statement that is lowered became one instruction, without a guard, that writes only `results_`.
bool Lowering::may_be_steady(std::size_t first) const {
  if (program_.code.size() != first + 1 || results_.size() != 1 || statement_->guard >= 0)
    return false;
  const Instruction& instruction = program_.code.back();
  if (instruction.flow != Flow::plain || has("cc")) return false;
  if (std::ranges::find(pure_opcodes, opcode()) == pure_opcodes.end()) return false;
  return opcode() != "ld" || reads_parameter(instruction, program_.parameter_bytes);
}

void Lowering::note_results(std::size_t first) {
  if (may_be_steady(first)) candidates_[first] = results_[0];
  if (program_.code.size() == first + 1) results_of_[first] = {results_.begin(), results_.end()};
  for (const Slot slot : results_) ++writers_[slot];
  results_.clear();
}

// Takes steady instructions out of the code. Where each one of the others is then, and the end of the code.
std::vector<std::int32_t> Lowering::separate_steady() {
  std::vector<Instruction> varying;
  std::vector<std::int32_t> places;
  std::map<std::size_t, std::set<Slot>> results_of;
  for (std::size_t k = 0; k < program_.code.size(); ++k) {
    places.push_back(static_cast<std::int32_t>(varying.size()));
    Instruction& instruction = program_.code[k];
    const auto candidate = candidates_.find(k);
    const Slot result = candidate == candidates_.end() ? no_slot : candidate->second;
    const bool is_steady =
        result != no_slot && writers_[result] == 1 &&
        std::ranges::all_of(instruction.slots, [&](Slot slot) {
          return slot == no_slot || slot == result || steady_.contains(slot);
        });
    // What reads its own result is no single assignment.
    if (is_steady && std::ranges::count(instruction.slots, result) == 1) {
      steady_.insert(result);
      program_.steady.push_back(std::move(instruction));
    } else {
      results_of[varying.size()] = std::move(results_of_[k]);
      varying.push_back(std::move(instruction));
    }
  }
  places.push_back(static_cast<std::int32_t>(varying.size()));
  program_.code = std::move(varying);
  results_of_ = std::move(results_of);
  return places;
}

}  // namespace simulate_gpus::ptx
