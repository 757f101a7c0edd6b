// What .ftz, .sat, .relu and NaN do to the operands and the results of arithmetic. Float is float, double, Half or BFloat.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ptx/execution/halves.hpp"
#include "ptx/execution/instruction.hpp"

namespace simulate_gpus::ptx {

// In what a type's arithmetic is done: see halves.hpp.
template <class Float>
using Calculated =
    std::conditional_t<std::is_same_v<Float, Half>, float,
                       std::conditional_t<std::is_same_v<Float, BFloat>, double, Float>>;

template <class Float>
Calculated<Float> calculated(Float value) {
  return static_cast<Calculated<Float>>(to_float(value));
}
inline double calculated(double value) { return value; }

template <class Float>
Float rounded_to(Calculated<Float> value) {
  if constexpr (std::is_same_v<Float, Half>)
    return to_half(value);
  else if constexpr (std::is_same_v<Float, BFloat>)
    return to_bfloat(value);
  else if constexpr (std::is_same_v<Float, float>)
    return value != value ? std::bit_cast<float>(0x7FFFFFFFU) : value;  // the NaN of a card
  else
    return value;
}

template <class Float>
constexpr double smallest_normal = std::is_same_v<Float, Half>     ? 0x1p-14
                                   : std::is_same_v<Float, double> ? 0x1p-1022
                                                                   : 0x1p-126;

// Denormal numbers are zeros of their sign.
template <class Float>
Calculated<Float> flushed(Calculated<Float> value) {
  using C = Calculated<Float>;
  return std::abs(value) < static_cast<C>(smallest_normal<Float>) ? std::copysign(C{0}, value)
                                                                  : value;
}

template <class Float>
Calculated<Float> operand_of(const Rules& rules, Float bits) {
  const Calculated<Float> value = calculated(bits);
  return rules.ftz ? flushed<Float>(value) : value;
}

// The bits of a result, which has been rounded where the host's arithmetic is the type's own. `exact` has more bits: .ftz
// makes a result zero if it is below the normal numbers when it is rounded as if there were more of them.
template <class Float>
Float result_of(const Rules& rules, Calculated<Float> value, double exact) {
  Float result = rounded_to<Float>(value);
  if (rules.ftz && std::abs(exact) < smallest_normal<Float>) {
    const auto scaled = static_cast<Calculated<Float>>(exact / smallest_normal<Float>);
    if (std::abs(calculated(rounded_to<Float>(scaled))) < 1)
      result = rounded_to<Float>(std::copysign(Calculated<Float>{0}, value));
  }
  if (rules.sat) {
    const Calculated<Float> now = calculated(result);
    result = rounded_to<Float>(!(now > 0) ? 0 : now > 1 ? 1 : now);
  }
  if (rules.relu) {
    const Calculated<Float> now = calculated(result);
    if (std::signbit(now) && now == now) result = rounded_to<Float>(0);
  }
  return result;
}

}  // namespace simulate_gpus::ptx
