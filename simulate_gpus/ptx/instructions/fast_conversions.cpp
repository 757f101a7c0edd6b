#include "ptx/instructions/apply.hpp"
#include "ptx/instructions/conversions.hpp"
#include "ptx/instructions/floats.hpp"

namespace simulate_gpus::ptx {
namespace {

struct Cast {
  template <class From>
  auto operator()(From a) const {
    return a;
  }
};
struct ToFloat {
  template <class From>
  float operator()(From a) const {
    return rounded_to<float>(static_cast<float>(calculated(a)));
  }
};
struct KeepNan {  // cvt.f32.bf16 moves bits
  float operator()(BFloat a) const { return to_float(a); }
};
struct ToDouble {
  template <class From>
  double operator()(From a) const {
    return static_cast<double>(calculated(a));
  }
};
struct ToHalf {
  Half operator()(float a) const { return to_half(a); }
};
struct ToBFloat {
  BFloat operator()(float a) const { return to_bfloat(a); }
};
// cvt.rzi.s32.f32: NaN is zero, what is too large the nearest integer.
struct TruncateToInt {
  std::int32_t operator()(float a) const {
    const std::int32_t whole = static_cast<std::int32_t>(std::abs(a) < 0x1p31F ? a : 0.0F);
    const std::int32_t largest = a >= 0x1p31F ? 0x7FFFFFFF : whole;
    return a <= -0x1p31F ? std::int32_t{-0x7FFFFFFF - 1} : largest;
  }
};

struct Saturate {  // cvt.sat.f32.f32: NaN is zero
  float operator()(float a) const {
    const float below = a < 1 ? a : 1;
    return a > 0 ? below : 0;
  }
};

template <class Visitor>
Handler for_integers_and_bytes(Type type, Visitor&& visit) {
  if (type == Type::u8 || type == Type::b8) return visit.template operator()<std::uint8_t>();
  if (type == Type::s8) return visit.template operator()<std::int8_t>();
  return for_integers(type, visit);
}

Handler between_integers(Type to, Type from) {
  return for_integers_and_bytes(to, [&]<class To>() -> Handler {
    return for_integers_and_bytes(from,
                                  []<class From>() -> Handler { return apply<Cast, To, From>; });
  });
}

Handler from_integer(Type to, Type from) {
  return for_integers_and_bytes(from, [&]<class From>() -> Handler {
    return to == Type::f32 ? apply<Cast, float, From> : apply<Cast, double, From>;
  });
}

}  // namespace

Handler fast_conversion(Type to, Type from, const Rules& rules, bool is_finite) {
  if (to == Type::f32 && from == Type::f32 && rules.sat && !rules.ftz && !rules.to_integer)
    return apply<Saturate, float, float>;
  if (rules.ftz || rules.sat || rules.relu || is_finite) return nullptr;
  if (to == Type::s32 && from == Type::f32 && rules.to_integer && rules.rounding == Rounding::zero)
    return apply<TruncateToInt, std::int32_t, float>;
  if (rules.to_integer || rules.rounding != Rounding::nearest) return nullptr;
  if (is_integer(to) && is_integer(from)) return between_integers(to, from);
  if (is_float(to) && is_integer(from)) return from_integer(to, from);
  if (to == Type::f32 && from == Type::f16) return apply<ToFloat, float, Half>;
  if (to == Type::f32 && from == Type::bf16) return apply<KeepNan, float, BFloat>;
  if (to == Type::f32 && from == Type::f64) return apply<ToFloat, float, double>;
  if (to == Type::f64 && from == Type::f32) return apply<ToDouble, double, float>;
  if (to == Type::f64 && from == Type::f16) return apply<ToDouble, double, Half>;
  if (to == Type::f64 && from == Type::bf16) return apply<ToDouble, double, BFloat>;
  if (to == Type::f16 && from == Type::f32) return apply<ToHalf, Half, float>;
  if (to == Type::bf16 && from == Type::f32) return apply<ToBFloat, BFloat, float>;
  return nullptr;
}

}  // namespace simulate_gpus::ptx
