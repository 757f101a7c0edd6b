// f16 and bf16, alone and two in a register: add, sub, mul, fma, min, max, neg, abs.
#include "ptx/instructions/approximations.hpp"
#include "ptx/instructions/arithmetic.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

// The product is exact in double; the sum keeps a mark of the bits that it loses, so that the type's rounding is right.
template <class Float>
Float fused(const Rules& rules, Float a, Float b, Float c) {
  const auto value = [&](Float bits) { return static_cast<double>(operand_of(rules, bits)); };
  const double sum = add_to_odd(value(a) * value(b), value(c));
  Float result;
  if constexpr (std::is_same_v<Float, Half>)
    result = to_half(sum);
  else
    result = to_bfloat(sum);
  return result_of<Float>(rules, calculated(result), sum);
}

template <class F, class Float>
struct HalfOperation {
  template <class... Sources>
  Float operator()(const Instruction& instruction, Sources... sources) const {
    const Rules& rules = instruction.rules;
    if constexpr (sizeof...(Sources) == 3)
      return fused(rules, sources...);
    else if constexpr (std::is_invocable_v<F, const Rules&, decltype(calculated(sources))...>)
      return finished(rules, F()(rules, operand_of(rules, sources)...));
    else
      return finished(rules, F()(operand_of(rules, sources)...));
  }

 private:
  static Float finished(const Rules& rules, Calculated<Float> value) {
    return result_of<Float>(rules, value, static_cast<double>(value));
  }
};

// The same for the lower and the upper half of registers of 32 bits.
template <class Operation, class Float>
struct InBothHalves {
  template <class... Words>
  std::uint32_t operator()(const Instruction& instruction, Words... words) const {
    const Float low = Operation()(instruction, Float{static_cast<std::uint16_t>(words)}...);
    const Float high = Operation()(instruction, Float{static_cast<std::uint16_t>(words >> 16)}...);
    return low.bits | std::uint32_t{high.bits} << 16;
  }
};

template <class F, class Float>
Handler half_handler(bool is_pair, std::size_t sources) {
  using One = HalfOperation<F, Float>;
  using Two = InBothHalves<One, Float>;
  using Word = std::uint32_t;
  if constexpr (std::is_same_v<F, NegFloat> || std::is_same_v<F, AbsFloat>) {
    if (sources == 1) return is_pair ? apply_with<Two, Word, Word> : apply_with<One, Float, Float>;
  } else if constexpr (std::is_same_v<F, void>) {
    return is_pair ? apply_with<Two, Word, Word, Word, Word>
                   : apply_with<One, Float, Float, Float, Float>;
  } else {
    return is_pair ? apply_with<Two, Word, Word, Word> : apply_with<One, Float, Float, Float>;
  }
  return nullptr;
}

template <class Float>
Handler half_handler_named(std::string_view name, bool is_pair) {
  if (name == "add") return half_handler<AddFloat, Float>(is_pair, 2);
  if (name == "sub") return half_handler<SubFloat, Float>(is_pair, 2);
  if (name == "mul") return half_handler<MulFloat, Float>(is_pair, 2);
  if (name == "min") return half_handler<Extreme<false>, Float>(is_pair, 2);
  if (name == "max") return half_handler<Extreme<true>, Float>(is_pair, 2);
  if (name == "neg") return half_handler<NegFloat, Float>(is_pair, 1);
  if (name == "abs") return half_handler<AbsFloat, Float>(is_pair, 1);
  return half_handler<void, Float>(is_pair, 3);
}

void lower_half(Lowering& lowering) {
  const std::string& name = lowering.opcode();
  const bool is_extreme = name == "min" || name == "max";
  const bool is_sum = name == "add" || name == "sub" || name == "mul";
  Rules rules;
  if (is_sum || name == "fma") lowering.take("rn");
  const Type type = lowering.last_type();
  const bool is_f16 = type == Type::f16 || type == Type::f16x2;
  rules.ftz = is_f16 && lowering.take("ftz");
  rules.sat = is_f16 && (is_sum || name == "fma") && lowering.take("sat");
  rules.relu = name == "fma" && lowering.take("relu");
  // The NaN that .oob treats as zero comes from copies of tensors alone, which are not offered.
  if (name == "fma") lowering.take("oob");
  rules.nan = is_extreme && lowering.take("NaN");
  rules.xorsign_abs = is_extreme && lowering.take("xorsign");
  if (rules.xorsign_abs && !lowering.take("abs")) lowering.invalid("it needs .xorsign.abs");
  lowering.take_last_type();
  const std::size_t count = name == "fma" ? 3 : name == "neg" || name == "abs" ? 1 : 2;
  lowering.expect_operands(count + 1, count + 1);
  std::vector<Slot> slots = {lowering.target(0, type)};
  for (std::size_t k = 1; k <= count; ++k) slots.push_back(lowering.source(k, type));
  const bool is_pair = bits_of(type) == 32;
  const Handler run =
      is_f16 ? half_handler_named<Half>(name, is_pair) : half_handler_named<BFloat>(name, is_pair);
  lowering.emit(run, std::move(slots)).rules = rules;
}

constexpr Opcode half_table[] = {
    {"add", TypeKind::half, lower_half}, {"sub", TypeKind::half, lower_half},
    {"mul", TypeKind::half, lower_half}, {"fma", TypeKind::half, lower_half},
    {"min", TypeKind::half, lower_half}, {"max", TypeKind::half, lower_half},
    {"neg", TypeKind::half, lower_half}, {"abs", TypeKind::half, lower_half},
};

}  // namespace

std::span<const Opcode> half_opcodes() { return half_table; }

}  // namespace simulate_gpus::ptx
