// Words put together of others: prmt, lop3, shf.
#include <algorithm>
#include <array>

#include "ptx/instructions/apply.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

enum PermutationMode : std::uint8_t {
  prmt_any,
  prmt_f4e,
  prmt_b4e,
  prmt_rc8,
  prmt_ecl,
  prmt_ecr,
  prmt_rc16
};

// Each nibble of the control picks one of the eight bytes of a and b; its top bit: the byte's sign eight times.
struct Prmt {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t control) const {
    const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
    std::uint32_t result = 0;
    for (unsigned k = 0; k < 4; ++k) {
      const unsigned pick = control >> (4 * k) & 15;
      std::uint32_t byte = static_cast<std::uint32_t>(bytes >> (8 * (pick & 7))) & 255;
      if ((pick & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
      result |= byte << (8 * k);
    }
    return result;
  }
};
// The modes' picks follow from the two lowest bits of the control.
struct PrmtMode {
  std::uint32_t operator()(const Instruction& instruction, std::uint32_t a, std::uint32_t b,
                           std::uint32_t control) const {
    const unsigned c = control & 3;
    std::uint32_t picks = 0;
    for (unsigned k = 0; k < 4; ++k) {
      unsigned pick = c;  // rc8
      if (instruction.mode == prmt_f4e) pick = c + k;
      if (instruction.mode == prmt_b4e) pick = (c - k) & 7;
      if (instruction.mode == prmt_ecl) pick = std::max(k, c);
      if (instruction.mode == prmt_ecr) pick = std::min(k, c);
      if (instruction.mode == prmt_rc16) pick = 2 * (c & 1) + (k & 1);
      picks |= pick << (4 * k);
    }
    return Prmt()(a, b, picks);
  }
};

// Any function of three bits, by its table.
std::uint32_t look_up(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t table) {
  std::uint32_t result = 0;
  for (unsigned row = 0; row < 8; ++row) {
    const std::uint32_t is_row =
        ((row & 4) != 0 ? a : ~a) & ((row & 2) != 0 ? b : ~b) & ((row & 1) != 0 ? c : ~c);
    result |= is_row & (0 - (table >> row & 1));
  }
  return result;
}
void lop3(Warp& warp, const Instruction& instruction, Mask mask) {
  const Lanes lanes = warp.lanes;
  const Slot a = instruction.slots[1], b = instruction.slots[2], c = instruction.slots[3];
  const auto table = static_cast<std::uint32_t>(instruction.immediate);
  for_lanes<std::uint32_t>(lanes, instruction.slots[0], mask, [&](int lane) {
    return look_up(lanes.get<std::uint32_t>(a, lane), lanes.get<std::uint32_t>(b, lane),
                   lanes.get<std::uint32_t>(c, lane), table);
  });
}
// lop3.or, lop3.and: also whether the result is not zero, joined with a predicate. slots: d, a, b, c, p, q
void lop3_with_predicate(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::vector<Slot>& slots = instruction.slots;
  const auto table = static_cast<std::uint32_t>(instruction.immediate);
  Mask truth = 0;
  each_lane(mask, [&](int lane) {
    const auto word = [&](std::size_t k) { return warp.lanes.get<std::uint32_t>(slots[k], lane); };
    const std::uint32_t result = look_up(word(1), word(2), word(3), table);
    if (slots[0] != no_slot) warp.lanes.put(slots[0], lane, result);
    truth |= static_cast<Mask>(result != 0) << lane;
  });
  const Mask read = warp.lanes.predicate(slots[5]);
  const Mask other = instruction.negated ? ~read : read;
  const bool is_and = instruction.combination == Combination::conjunction;
  warp.lanes.put_predicate(slots[4], mask, is_and ? truth & other : truth | other);
}

// The upper or the lower word of b:a, moved left or right.
template <bool IsLeft, bool Clamps>
struct Shf {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t count) const {
    const std::uint32_t n = Clamps ? std::min(count, 32U) : count & 31;
    const std::uint64_t both = std::uint64_t{b} << 32 | a;
    return static_cast<std::uint32_t>(IsLeft ? both << n >> 32 : both >> n);
  }
};

std::vector<Slot> four_words(Lowering& lowering) {
  return {lowering.target(0, Type::b32), lowering.source(1, Type::b32),
          lowering.source(2, Type::b32), lowering.source(3, Type::b32)};
}

void lower_prmt(Lowering& lowering) {
  lowering.take("b32");
  static constexpr std::array<std::string_view, 7> modes = {"",    "f4e", "b4e", "rc8",
                                                            "ecl", "ecr", "rc16"};
  std::uint8_t mode = prmt_any;
  for (std::size_t k = 1; k < modes.size(); ++k)
    if (lowering.take(modes[k])) mode = static_cast<std::uint8_t>(k);
  using Word = std::uint32_t;
  const Handler run = mode == prmt_any ? apply<Prmt, Word, Word, Word, Word>
                                       : apply_with<PrmtMode, Word, Word, Word, Word>;
  lowering.emit(run, four_words(lowering)).mode = mode;
}

void lower_lop3(Lowering& lowering) {
  const std::string_view joined = lowering.take_one_of({"and", "or"});
  lowering.take("b32");
  const Operand& table = lowering.operand(4);
  if (table.kind != Operand::Kind::number || table.bits > 255)
    lowering.invalid("its table is no number of 8 bits");
  std::vector<Slot> slots = four_words(lowering);
  if (!joined.empty()) {
    slots.push_back(lowering.second_target(0, Type::pred));
    slots.push_back(lowering.predicate(lowering.operand(5)));
    if (slots[4] == no_slot) lowering.invalid("a second result is missing");
  }
  Instruction& instruction =
      lowering.emit(joined.empty() ? lop3 : lop3_with_predicate, std::move(slots));
  instruction.immediate = static_cast<std::int64_t>(table.bits);
  instruction.combination = joined == "and" ? Combination::conjunction : Combination::disjunction;
  if (!joined.empty()) instruction.negated = lowering.operand(5).negated;
}

void lower_shf(Lowering& lowering) {
  const bool is_left = lowering.take("l");
  if (!is_left && !lowering.take("r")) lowering.invalid("it needs .l or .r");
  const bool clamps = lowering.take("clamp");
  if (!clamps && !lowering.take("wrap")) lowering.invalid("it needs .clamp or .wrap");
  lowering.take("b32");
  using Word = std::uint32_t;
  const Handler run = is_left ? (clamps ? apply<Shf<true, true>, Word, Word, Word, Word>
                                        : apply<Shf<true, false>, Word, Word, Word, Word>)
                              : (clamps ? apply<Shf<false, true>, Word, Word, Word, Word>
                                        : apply<Shf<false, false>, Word, Word, Word, Word>);
  lowering.emit(run, four_words(lowering));
}

constexpr Opcode permutation_table[] = {
    {"prmt", TypeKind::any, lower_prmt},
    {"lop3", TypeKind::any, lower_lop3},
    {"shf", TypeKind::any, lower_shf},
};

}  // namespace

std::span<const Opcode> permutation_opcodes() { return permutation_table; }

}  // namespace simulate_gpus::ptx
