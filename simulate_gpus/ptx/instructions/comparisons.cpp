// Comparisons: setp, set, testp.
#include <array>
#include <cmath>

#include "ptx/instructions/apply.hpp"
#include "ptx/instructions/floats.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

// What holds of a pair of operands is one of four; a comparison is the set of those for which it is true.
enum Relation : std::uint8_t { is_less = 1, is_equal = 2, is_greater = 4, is_unordered = 8 };

struct Comparison {
  std::string_view name;
  std::uint8_t relations;
};
constexpr std::array comparisons = {
    Comparison{"eq", is_equal},
    Comparison{"ne", is_less | is_greater},
    Comparison{"lt", is_less},
    Comparison{"le", is_less | is_equal},
    Comparison{"gt", is_greater},
    Comparison{"ge", is_greater | is_equal},
    Comparison{"lo", is_less},
    Comparison{"ls", is_less | is_equal},
    Comparison{"hi", is_greater},
    Comparison{"hs", is_greater | is_equal},
    Comparison{"equ", is_equal | is_unordered},
    Comparison{"neu", is_less | is_greater | is_unordered},
    Comparison{"ltu", is_less | is_unordered},
    Comparison{"leu", is_less | is_equal | is_unordered},
    Comparison{"gtu", is_greater | is_unordered},
    Comparison{"geu", is_greater | is_equal | is_unordered},
    Comparison{"num", is_less | is_equal | is_greater},
    Comparison{"nan", is_unordered},
};

// A comparison, for vectors: each relation has all bits set, if it makes the comparison true, or none.
class Truth {
 public:
  explicit Truth(Mask relations)
      : less_(bits(relations & is_less)),
        equal_(bits(relations & is_equal)),
        greater_(bits(relations & is_greater)),
        unordered_(bits(relations & is_unordered)) {}

  template <class T>
  Mask of(T a, T b) const {
    const Mask ordered = (a < b ? less_ : 0) | (a == b ? equal_ : 0) | (a > b ? greater_ : 0);
    if constexpr (std::is_floating_point_v<T>)
      return ordered | (a != a ? unordered_ : 0) | (b != b ? unordered_ : 0);
    return ordered;
  }

 private:
  static Mask bits(Mask relation) { return relation != 0 ? all_lanes : 0; }
  Mask less_, equal_, greater_, unordered_;
};

// The lanes in which the comparison is true; of halves those of the upper or the lower ones.
template <class T>
Mask compare_lanes(const Lanes lanes, Slot a, Slot b, const Instruction& instruction, bool upper) {
  const Truth truth(instruction.mode);
  const bool ftz = instruction.rules.ftz;
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat>) {
    const auto value = [&](Slot slot, int lane) {
      const auto bits = lanes.get<std::uint32_t>(slot, lane);
      const float number =
          static_cast<float>(calculated(T{static_cast<std::uint16_t>(upper ? bits >> 16 : bits)}));
      return ftz ? static_cast<float>(flushed<T>(number)) : number;
    };
    return lanes_of([&](int lane) { return truth.of(value(a, lane), value(b, lane)); });
  } else {
    if constexpr (std::is_same_v<T, float>) {
      if (ftz)
        return lanes_of([&](int lane) {
          return truth.of(flushed<float>(lanes.get<float>(a, lane)),
                          flushed<float>(lanes.get<float>(b, lane)));
        });
    }
    return lanes_of(
        [&](int lane) { return truth.of(lanes.get<T>(a, lane), lanes.get<T>(b, lane)); });
  }
}

// Whether there are two of them in a register.
template <class T>
bool is_pair(const Instruction& instruction) {
  if constexpr (std::is_arithmetic_v<T>) return false;
  return bits_of(instruction.type) == 32;
}

Mask combined(const Lanes& lanes, const Instruction& instruction, Mask truth) {
  if (instruction.combination == Combination::none) return truth;
  const Mask read = lanes.predicate(instruction.slots[4]);
  const Mask other = instruction.negated ? ~read : read;
  if (instruction.combination == Combination::conjunction) return truth & other;
  return instruction.combination == Combination::disjunction ? truth | other : truth ^ other;
}

// slots: p, q or none, a, b, c or none. q is of the opposite, or of the upper halves.
template <class T>
void setp(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::vector<Slot>& slots = instruction.slots;
  const Mask truth = compare_lanes<T>(warp.lanes, slots[2], slots[3], instruction, false);
  const Mask other = is_pair<T>(instruction)
                         ? compare_lanes<T>(warp.lanes, slots[2], slots[3], instruction, true)
                         : ~truth;
  const Mask first = combined(warp.lanes, instruction, truth),
             second = combined(warp.lanes, instruction, other);
  if (slots[0] != no_slot) warp.lanes.put_predicate(slots[0], mask, first);
  if (slots[1] != no_slot) warp.lanes.put_predicate(slots[1], mask, second);
}

// slots: d, none, a, b, c or none. The result's bits for "true" are the immediate.
template <class T>
void set(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::vector<Slot>& slots = instruction.slots;
  const bool has_pair = is_pair<T>(instruction);
  const auto truth_of = [&](bool upper) {
    return combined(warp.lanes, instruction,
                    compare_lanes<T>(warp.lanes, slots[2], slots[3], instruction, upper));
  };
  const Mask truth = truth_of(false), upper = has_pair ? truth_of(true) : 0;
  const auto one =
      static_cast<std::uint32_t>(instruction.immediate & (has_pair ? 0xFFFF : 0xFFFFFFFF));
  each_lane(mask, [&](int lane) {
    const std::uint32_t low = (truth >> lane & 1) != 0 ? one : 0;
    const std::uint32_t high = (upper >> lane & 1) != 0 ? one << 16 : 0;
    warp.lanes.put<std::uint32_t>(slots[0], lane, low | high);
  });
}

template <class T>
Handler comparison_of(bool is_set) {
  return is_set ? set<T> : setp<T>;
}

Handler comparison_handler(Type type, bool is_set) {
  if (type == Type::f32) return comparison_of<float>(is_set);
  if (type == Type::f64) return comparison_of<double>(is_set);
  if (type == Type::f16 || type == Type::f16x2) return comparison_of<Half>(is_set);
  if (type == Type::bf16 || type == Type::bf16x2) return comparison_of<BFloat>(is_set);
  return for_integers(type, [&]<class T>() -> Handler { return comparison_of<T>(is_set); });
}

std::int64_t one_of(Type type) {
  switch (type) {
    case Type::f32:
      return 0x3F800000;
    case Type::f16:
    case Type::f16x2:
      return 0x3C00;
    case Type::bf16:
    case Type::bf16x2:
      return 0x3F80;
    default:
      return 0xFFFFFFFF;
  }
}

void lower_comparison(Lowering& lowering) {
  const bool is_set = lowering.opcode() == "set";
  std::uint8_t relations = 0;
  for (const Comparison& comparison : comparisons)
    if (relations == 0 && lowering.take(comparison.name)) relations = comparison.relations;
  if (relations == 0) lowering.invalid("a comparison is missing");
  Combination combination = Combination::none;
  if (lowering.take("and")) combination = Combination::conjunction;
  if (lowering.take("or")) combination = Combination::disjunction;
  if (lowering.take("xor")) combination = Combination::exclusive;
  Rules rules;
  rules.ftz = lowering.take("ftz");
  const Type result = is_set ? lowering.take_type() : Type::pred;
  const Type type = lowering.take_type();
  const Handler run = comparison_handler(type, is_set);
  if (run == nullptr) lowering.invalid("it does not compare ." + std::string(name_of(type)));
  const bool is_combined = combination != Combination::none;
  lowering.expect_operands(is_combined ? 4 : 3, is_combined ? 4 : 3);
  const Slot third = is_combined ? lowering.predicate(lowering.operand(3)) : no_slot;
  std::vector<Slot> slots = {lowering.target(0, result),
                             is_set ? no_slot : lowering.second_target(0, Type::pred),
                             lowering.source(1, type), lowering.source(2, type), third};
  Instruction& instruction = lowering.emit(run, std::move(slots));
  instruction.mode = relations;
  instruction.rules = rules;
  instruction.type = type;
  instruction.combination = combination;
  instruction.immediate = one_of(result);
  if (is_combined) instruction.negated = lowering.operand(3).negated;
}

// What a number is, by its class; zero counts as normal. slots: p, a
template <class Float>
void testp(Warp& warp, const Instruction& instruction, Mask mask) {
  Mask truth = 0;
  each_lane(mask, [&](int lane) {
    const int kind = std::fpclassify(warp.lanes.get<Float>(instruction.slots[1], lane));
    const bool kinds[] = {
        kind != FP_NAN && kind != FP_INFINITE, kind == FP_INFINITE, kind != FP_NAN, kind == FP_NAN,
        kind == FP_NORMAL || kind == FP_ZERO,  kind == FP_SUBNORMAL};
    truth |= static_cast<Mask>(kinds[instruction.mode]) << lane;
  });
  warp.lanes.put_predicate(instruction.slots[0], mask, truth);
}

void lower_testp(Lowering& lowering) {
  static constexpr std::array<std::string_view, 6> kinds = {"finite",     "infinite", "number",
                                                            "notanumber", "normal",   "subnormal"};
  std::size_t kind = kinds.size();
  for (std::size_t k = 0; k < kinds.size(); ++k)
    if (lowering.take(kinds[k])) kind = k;
  if (kind == kinds.size()) lowering.invalid("a property is missing");
  const Type type = lowering.take_type();
  lowering
      .emit(type == Type::f32 ? testp<float> : testp<double>,
            {lowering.target(0, Type::pred), lowering.source(1, type)})
      .mode = static_cast<std::uint8_t>(kind);
}

constexpr Opcode comparison_table[] = {
    {"setp", TypeKind::any, lower_comparison},
    {"set", TypeKind::any, lower_comparison},
    {"testp", TypeKind::real, lower_testp},
};

}  // namespace

std::span<const Opcode> comparison_opcodes() { return comparison_table; }

}  // namespace simulate_gpus::ptx
