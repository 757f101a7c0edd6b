// .approx and .full: rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh, div. Results are those of the host's functions, which are
// nearer to the true values than the manual asks; so their last bits can differ from a card's.
#include <limits>

#include "ptx/instructions/approximations.hpp"
#include "ptx/instructions/arithmetic.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

// clang-format off
struct ApproxRcp { template <class C> C operator()(C a) const { return 1 / a; } };
struct ApproxSqrt { template <class C> C operator()(C a) const { return std::sqrt(a); } };
struct ApproxSin { template <class C> C operator()(C a) const { return std::sin(a); } };
struct ApproxCos { template <class C> C operator()(C a) const { return std::cos(a); } };
struct ApproxLg2 { template <class C> C operator()(C a) const { return std::log2(a); } };
struct ApproxEx2 { template <class C> C operator()(C a) const { return std::exp2(a); } };
struct ApproxTanh { template <class C> C operator()(C a) const { return std::tanh(a); } };
// clang-format on
struct ApproxRsqrt {
  template <class C>
  C operator()(C a) const {
    return static_cast<C>(1 / std::sqrt(static_cast<double>(a)));
  }
};
// By |b| above 2^126 the quotient of a finite number is zero, and of an infinite one NaN. With .ftz a card multiplies by
// the reciprocal, which can round a quotient up to infinity.
template <bool IsFull>
struct QuotientByFloat {
  template <class C>
  C operator()(const Rules& rules, C a, C b) const {
    const C limit = static_cast<C>(0x1p126);
    if (std::abs(b) > limit && std::isfinite(b)) {
      if (IsFull) return a / b;
      if (std::isinf(a)) return std::numeric_limits<C>::quiet_NaN();
      return std::copysign(C{0}, std::signbit(a) == std::signbit(b) ? C{1} : C{-1}) + (a - a);
    }
    return rules.ftz ? a * (1 / b) : a / b;
  }
};
// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 look at the upper word alone, and clear the lower one of the result.
template <class F>
struct UpperWord {
  double operator()(double a) const {
    const double upper =
        std::bit_cast<double>(std::bit_cast<std::uint64_t>(a) & 0xFFFFFFFF00000000);
    const double result = flushed<double>(F()(flushed<double>(upper)));
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(result) & 0xFFFFFFFF00000000);
  }
};

// Of halves: the function of floats, rounded.
template <class F, class Float>
struct InHalf {
  Float operator()(const Instruction& instruction, Float a) const {
    float value = to_float(a);
    if (instruction.rules.ftz) value = flushed<float>(value);
    float result = F()(value);
    if (instruction.rules.ftz) result = flushed<float>(result);
    if constexpr (std::is_same_v<Float, Half>)
      return to_half(result);
    else
      return to_bfloat(result);
  }
};
template <class F, class Float>
struct InTwoHalves {
  std::uint32_t operator()(const Instruction& instruction, std::uint32_t a) const {
    const Float low = InHalf<F, Float>()(instruction, Float{static_cast<std::uint16_t>(a)});
    const Float high = InHalf<F, Float>()(instruction, Float{static_cast<std::uint16_t>(a >> 16)});
    return low.bits | std::uint32_t{high.bits} << 16;
  }
};

template <class F>
Handler approximation_of_half(Type type) {
  using Word = std::uint32_t;
  switch (type) {
    case Type::f16:
      return apply_with<InHalf<F, Half>, Half, Half>;
    case Type::bf16:
      return apply_with<InHalf<F, BFloat>, BFloat, BFloat>;
    case Type::f16x2:
      return apply_with<InTwoHalves<F, Half>, Word, Word>;
    case Type::bf16x2:
      return apply_with<InTwoHalves<F, BFloat>, Word, Word>;
    default:
      return nullptr;
  }
}

Handler approximation_named(std::string_view name, Type type, bool ftz) {
  if (is_half(type))
    return name == "ex2"    ? approximation_of_half<ApproxEx2>(type)
           : name == "tanh" ? approximation_of_half<ApproxTanh>(type)
                            : nullptr;
  if (type == Type::f64) {
    if (name == "rcp" && ftz) return apply<UpperWord<ApproxRcp>, double, double>;
    if (name == "rsqrt")
      return ftz ? apply<UpperWord<ApproxRsqrt>, double, double>
                 : apply<ApproxRsqrt, double, double>;
    return nullptr;
  }
  if (name == "rcp") return apply_ruled<ApproxRcp, float, float>;
  if (name == "sqrt") return apply_ruled<ApproxSqrt, float, float>;
  if (name == "rsqrt") return apply_ruled<ApproxRsqrt, float, float>;
  if (name == "sin") return apply_ruled<ApproxSin, float, float>;
  if (name == "cos") return apply_ruled<ApproxCos, float, float>;
  if (name == "lg2") return apply_ruled<ApproxLg2, float, float>;
  if (name == "ex2") return apply_ruled<ApproxEx2, float, float>;
  if (name == "tanh" && !ftz) return apply_ruled<ApproxTanh, float, float>;
  return nullptr;
}

constexpr Opcode approximation_table[] = {
    {"rsqrt", TypeKind::real, lower_approximation}, {"sin", TypeKind::real, lower_approximation},
    {"cos", TypeKind::real, lower_approximation},   {"lg2", TypeKind::real, lower_approximation},
    {"ex2", TypeKind::any, lower_approximation},    {"tanh", TypeKind::any, lower_approximation},
};

}  // namespace

void lower_approximation(Lowering& lowering) {
  const std::string& name = lowering.opcode();
  const bool is_full = name == "div" && lowering.take("full");
  if (!is_full && !lowering.take("approx")) lowering.invalid("it needs .approx");
  Rules rules;
  rules.ftz = lowering.take("ftz");
  const Type type = lowering.take_type();
  Handler run = nullptr;
  if (name == "div") {
    if (type != Type::f32) lowering.refuse();
    run = is_full ? apply_ruled<QuotientByFloat<true>, float, float, float>
                  : apply_ruled<QuotientByFloat<false>, float, float, float>;
  } else {
    run = approximation_named(name, type, rules.ftz);
  }
  if (run == nullptr) lowering.refuse();
  std::vector<Slot> slots = {lowering.target(0, type), lowering.source(1, type)};
  if (name == "div") slots.push_back(lowering.source(2, type));
  lowering.expect_operands(slots.size(), slots.size());
  lowering.emit(run, std::move(slots)).rules = rules;
}

std::span<const Opcode> approximation_opcodes() { return approximation_table; }

}  // namespace simulate_gpus::ptx
