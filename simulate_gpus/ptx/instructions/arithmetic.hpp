// Arithmetic that all types of floats have, on the values in which it is done.
#pragma once

#include <cmath>

#include "ptx/execution/formats.hpp"
#include "ptx/instructions/apply.hpp"
#include "ptx/instructions/floats.hpp"

namespace simulate_gpus::ptx {

// clang-format off
struct AddFloat { template <class C> C operator()(C a, C b) const { return a + b; } };
struct SubFloat { template <class C> C operator()(C a, C b) const { return a - b; } };
struct MulFloat { template <class C> C operator()(C a, C b) const { return a * b; } };
struct NegFloat { template <class C> C operator()(C a) const { return -a; } };
struct AbsFloat { template <class C> C operator()(C a) const { return std::abs(a); } };
// clang-format on

// The result of min or max; a NaN is left out unless .NaN keeps it, and -0 is below +0.
template <bool IsMax>
struct Extreme {
  template <class C>
  C operator()(const Rules& rules, C a, C b) const {
    const bool is_negative = std::signbit(a) != std::signbit(b);
    if (rules.xorsign_abs) {
      a = std::abs(a);
      b = std::abs(b);
    }
    C result = a;
    if (a != a || b != b) {
      const bool is_nan = rules.nan || (a != a && b != b);
      result = is_nan ? a + b : a != a ? b : a;
    } else if (a == b) {
      result = std::signbit(a) == IsMax ? b : a;
    } else {
      result = (a < b) == IsMax ? b : a;
    }
    return rules.xorsign_abs ? std::copysign(result, is_negative ? C{-1} : C{1}) : result;
  }
};

// d = F()(a ...) with the instruction's rules and rounding.
template <class F, class Float, class... Sources>
void apply_ruled(Warp& warp, const Instruction& instruction, Mask mask) {
  const RoundingScope rounding(instruction.rules.rounding);
  const Lanes lanes = warp.lanes;
  const Rules rules = instruction.rules;
  const Slot* const slots = instruction.slots.data();
  [&]<std::size_t... Number>(std::index_sequence<Number...>) {
    each_lane(mask, [&](int lane) {
      const auto calculate = [&](auto... values) {
        if constexpr (std::is_invocable_v<F, const Rules&, decltype(values)...>)
          return F()(rules, values...);
        else
          return F()(values...);
      };
      const auto value =
          calculate(operand_of(rules, lanes.get<Sources>(slots[Number + 1], lane))...);
      const double exact = rules.ftz ? calculate(static_cast<double>(operand_of(
                                           rules, lanes.get<Sources>(slots[Number + 1], lane)))...)
                                     : 0;
      lanes.put<Float>(slots[0], lane, result_of<Float>(rules, value, exact));
    });
  }
  (std::index_sequence_for<Sources...>());
}

}  // namespace simulate_gpus::ptx
