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

// The same without modifiers, and without branches.
template <bool IsMax>
struct PlainExtreme {
  template <class C>
  C operator()(C a, C b) const {
    using Bits = std::conditional_t<sizeof(C) == 4, std::uint32_t, std::uint64_t>;
    const auto left = std::bit_cast<Bits>(a), right = std::bit_cast<Bits>(b);
    const C either = std::bit_cast<C>(IsMax ? left & right : left | right);  // of two zeros
    const C chosen = (IsMax ? b > a : b < a) ? b : a;
    const C known = a == b ? either : chosen;
    const C other = b != b ? a + b : b;
    return a != a ? other : known;
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
      // Only results that are not above the smallest normal number can become zero by .ftz.
      const bool may_flush = rules.ftz && std::abs(value) <= smallest_normal<Float>;
      const double exact = may_flush ? calculate(static_cast<double>(operand_of(
                                           rules, lanes.get<Sources>(slots[Number + 1], lane)))...)
                                     : 1;
      lanes.put<Float>(slots[0], lane, result_of<Float>(rules, value, exact));
    });
  }
  (std::index_sequence_for<Sources...>());
}

}  // namespace simulate_gpus::ptx
