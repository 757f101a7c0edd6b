// A choice of two operands: selp, slct; and logic of predicates: and, or, xor, not.
#include "ptx/instructions/apply.hpp"
#include "ptx/instructions/floats.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

// slots: d, a, b, p
template <class T>
void selp(Warp& warp, const Instruction& instruction, Mask mask) {
  const Lanes lanes = warp.lanes;
  const Slot a = instruction.slots[1], b = instruction.slots[2];
  const Mask read = lanes.predicate(instruction.slots[3]);
  const Mask chosen = instruction.negated ? ~read : read;
  for_lanes<T>(lanes, instruction.slots[0], mask, [&](int lane) {
    return (chosen >> lane & 1) != 0 ? lanes.get<T>(a, lane) : lanes.get<T>(b, lane);
  });
}

// a, where c is not negative; -0 is not, a NaN counts as negative.
template <class T>
struct SlctInteger {
  T operator()(T a, T b, std::int32_t c) const { return c >= 0 ? a : b; }
};
template <class T>
struct SlctFloat {
  T operator()(const Instruction& instruction, T a, T b, float c) const {
    return (instruction.rules.ftz ? flushed<float>(c) : c) >= 0 ? a : b;
  }
};

template <class T>
Handler slct_handler(Type chooser) {
  if (chooser == Type::f32) return apply_with<SlctFloat<T>, T, T, T, float>;
  return chooser == Type::s32 ? apply<SlctInteger<T>, T, T, T, std::int32_t> : nullptr;
}

void lower_selp(Lowering& lowering) {
  const Type type = lowering.take_type();
  if (type == Type::pred) lowering.invalid("it does not choose predicates");
  const Slot chooser = lowering.predicate(lowering.operand(3));
  const Handler run = bits_of(type) > 32 ? selp<std::uint64_t> : selp<std::uint32_t>;
  lowering
      .emit(run,
            {lowering.target(0, type), lowering.source(1, type), lowering.source(2, type), chooser})
      .negated = lowering.operand(3).negated;
}

void lower_slct(Lowering& lowering) {
  Rules rules;
  rules.ftz = lowering.take("ftz");
  const Type type = lowering.take_type(), chooser = lowering.take_type();
  const Handler run = bits_of(type) > 32 ? slct_handler<std::uint64_t>(chooser)
                                         : slct_handler<std::uint32_t>(chooser);
  if (run == nullptr) lowering.invalid("it chooses by s32 or f32");
  lowering
      .emit(run, {lowering.target(0, type), lowering.source(1, type), lowering.source(2, type),
                  lowering.source(3, chooser)})
      .rules = rules;
}

// slots: d, a, b or none
void predicate_logic(Warp& warp, const Instruction& instruction, Mask mask) {
  const Mask a = warp.lanes.predicate(instruction.slots[1]);
  Mask result = ~a;
  if (instruction.combination != Combination::none) {
    const Mask b = warp.lanes.predicate(instruction.slots[2]);
    result = instruction.combination == Combination::conjunction   ? a & b
             : instruction.combination == Combination::disjunction ? a | b
                                                                   : a ^ b;
  }
  warp.lanes.put_predicate(instruction.slots[0], mask, result);
}

void lower_predicate_logic(Lowering& lowering) {
  const std::string& name = lowering.opcode();
  lowering.take_type();
  const bool is_not = name == "not";
  std::vector<Slot> slots = {lowering.target(0, Type::pred),
                             lowering.predicate(lowering.operand(1)),
                             is_not ? no_slot : lowering.predicate(lowering.operand(2))};
  if (lowering.operand(1).negated || (!is_not && lowering.operand(2).negated))
    lowering.refuse("! before an operand");
  lowering.emit(predicate_logic, std::move(slots)).combination =
      is_not          ? Combination::none
      : name == "and" ? Combination::conjunction
      : name == "or"  ? Combination::disjunction
                      : Combination::exclusive;
}

constexpr Opcode selection_table[] = {
    {"selp", TypeKind::any, lower_selp},
    {"slct", TypeKind::any, lower_slct},
    {"and", TypeKind::predicate, lower_predicate_logic},
    {"or", TypeKind::predicate, lower_predicate_logic},
    {"xor", TypeKind::predicate, lower_predicate_logic},
    {"not", TypeKind::predicate, lower_predicate_logic},
};

}  // namespace

std::span<const Opcode> selection_opcodes() { return selection_table; }

}  // namespace simulate_gpus::ptx
