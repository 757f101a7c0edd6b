// f32 and f64: add, sub, mul, fma, mad, div, rcp, sqrt, min, max, neg, abs, copysign. The host's arithmetic rounds as
// IEEE 754 says, in each of its modes, so it is a card's.
#include "ptx/instructions/approximations.hpp"
#include "ptx/instructions/arithmetic.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

struct FmaFloat {
  template <class C>
  C operator()(C a, C b, C c) const {
    return std::fma(a, b, c);
  }
};
// clang-format off
struct DivFloat { template <class C> C operator()(C a, C b) const { return a / b; } };
struct RcpFloat { template <class C> C operator()(C a) const { return 1 / a; } };
struct SqrtFloat { template <class C> C operator()(C a) const { return std::sqrt(a); } };
// clang-format on

// Without modifiers: the loop over all lanes has nothing but the operation.
template <class F>
struct Plain {
  template <class Float, class... Others>
  Float operator()(Float a, Others... others) const {
    return rounded_to<Float>(F()(a, others...));
  }
};

bool is_plain(const Rules& rules) {
  return !rules.ftz && !rules.sat && !rules.relu && !rules.nan && !rules.xorsign_abs;
}

template <class F, class Float, class... Sources>
void apply_rounded(Warp& warp, const Instruction& instruction, Mask mask) {
  const RoundingScope rounding(instruction.rules.rounding);
  apply<Plain<F>, Float, Sources...>(warp, instruction, mask);
}

template <class F, class Float, class... Sources>
Handler plain_or_ruled(const Rules& rules) {
  if (!is_plain(rules)) return apply_ruled<F, Float, Sources...>;
  return rules.rounding == Rounding::nearest ? apply<Plain<F>, Float, Sources...>
                                             : apply_rounded<F, Float, Sources...>;
}

template <class Float, bool IsMax>
Handler extreme(const Rules& rules) {
  return is_plain(rules) ? apply<Plain<PlainExtreme<IsMax>>, Float, Float, Float>
                         : apply_ruled<Extreme<IsMax>, Float, Float, Float>;
}

template <class Float>
Handler float_handler(std::string_view name, const Rules& rules) {
  if (name == "add") return plain_or_ruled<AddFloat, Float, Float, Float>(rules);
  if (name == "sub") return plain_or_ruled<SubFloat, Float, Float, Float>(rules);
  if (name == "mul") return plain_or_ruled<MulFloat, Float, Float, Float>(rules);
  if (name == "fma" || name == "mad")
    return plain_or_ruled<FmaFloat, Float, Float, Float, Float>(rules);
  if (name == "div") return plain_or_ruled<DivFloat, Float, Float, Float>(rules);
  if (name == "rcp") return apply_ruled<RcpFloat, Float, Float>;
  if (name == "sqrt") return plain_or_ruled<SqrtFloat, Float, Float>(rules);
  if (name == "neg") return plain_or_ruled<NegFloat, Float, Float>(rules);
  if (name == "abs") return plain_or_ruled<AbsFloat, Float, Float>(rules);
  return name == "min" ? extreme<Float, false>(rules) : extreme<Float, true>(rules);
}

std::size_t source_count(std::string_view name) {
  if (name == "fma" || name == "mad") return 3;
  return name == "rcp" || name == "sqrt" || name == "neg" || name == "abs" ? 1 : 2;
}

void lower_float(Lowering& lowering) {
  const std::string& name = lowering.opcode();
  if (lowering.has("approx") || lowering.has("full")) return lower_approximation(lowering);
  const bool is_extreme = name == "min" || name == "max";
  Rules rules;
  if (name != "neg" && name != "abs" && !is_extreme) {
    rules.rounding = lowering.take_rounding();
    if (rules.rounding == Rounding::away) lowering.invalid("it has no .rna");
  }
  const Type type = lowering.last_type();
  if (type == Type::f32) rules.ftz = lowering.take("ftz");
  if (type == Type::f32 && source_count(name) != 1 && !is_extreme && name != "div")
    rules.sat = lowering.take("sat");
  if (is_extreme && type == Type::f32) {
    rules.nan = lowering.take("NaN");
    rules.xorsign_abs = lowering.take("xorsign");
    if (rules.xorsign_abs && !lowering.take("abs")) lowering.invalid("it needs .xorsign.abs");
  }
  lowering.take_last_type();
  const std::size_t count = source_count(name);
  const bool has_third = is_extreme && lowering.operand_count() == 4;
  if (has_third) lowering.refuse("three operands");
  lowering.expect_operands(count + 1, count + 1);
  std::vector<Slot> slots = {lowering.target(0, type)};
  for (std::size_t k = 1; k <= count; ++k) slots.push_back(lowering.source(k, type));
  const Handler run =
      type == Type::f32 ? float_handler<float>(name, rules) : float_handler<double>(name, rules);
  lowering.emit(run, std::move(slots)).rules = rules;
}

// The magnitude of b with the sign of a.
template <class Bits>
struct CopySign {
  Bits operator()(Bits a, Bits b) const {
    constexpr Bits top = Bits{1} << (8 * sizeof(Bits) - 1);
    return (a & top) | (b & ~top);
  }
};
void lower_copysign(Lowering& lowering) {
  const Type type = lowering.take_type();
  const Handler run =
      type == Type::f32
          ? apply<CopySign<std::uint32_t>, std::uint32_t, std::uint32_t, std::uint32_t>
          : apply<CopySign<std::uint64_t>, std::uint64_t, std::uint64_t, std::uint64_t>;
  lowering.emit(run,
                {lowering.target(0, type), lowering.source(1, type), lowering.source(2, type)});
}

constexpr Opcode float_table[] = {
    {"add", TypeKind::real, lower_float},         {"sub", TypeKind::real, lower_float},
    {"mul", TypeKind::real, lower_float},         {"fma", TypeKind::real, lower_float},
    {"mad", TypeKind::real, lower_float},         {"div", TypeKind::real, lower_float},
    {"rcp", TypeKind::real, lower_float},         {"sqrt", TypeKind::real, lower_float},
    {"min", TypeKind::real, lower_float},         {"max", TypeKind::real, lower_float},
    {"neg", TypeKind::real, lower_float},         {"abs", TypeKind::real, lower_float},
    {"copysign", TypeKind::real, lower_copysign},
};

}  // namespace

std::span<const Opcode> float_opcodes() { return float_table; }

}  // namespace simulate_gpus::ptx
