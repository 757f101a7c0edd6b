// Products of integers: mul, mad, mul24, mad24, dp4a, dp2a.
#include <algorithm>
#include <limits>

#include "ptx/instructions/apply.hpp"
#include "ptx/instructions/multiply.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

struct MulLow {
  template <class T>
  T operator()(T a, T b) const {
    return low_product(a, b);
  }
};
struct MulHigh {
  template <class T>
  T operator()(T a, T b) const {
    return high_product(a, b);
  }
};
struct MulWide {
  template <class T>
  Double<T> operator()(T a, T b) const {
    return static_cast<Double<T>>(static_cast<Double<T>>(a) * static_cast<Double<T>>(b));
  }
};
template <class F>
struct ProductAndSum {
  template <class T, class C>
  C operator()(T a, T b, C c) const {
    using U = std::make_unsigned_t<C>;
    return static_cast<C>(static_cast<U>(F()(a, b)) + static_cast<U>(c));
  }
};
std::int32_t saturated(std::int64_t value) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(
      value, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()));
}
struct MadHighSat {  // mad.hi.sat.s32
  std::int32_t operator()(std::int32_t a, std::int32_t b, std::int32_t c) const {
    return saturated(std::int64_t{high_product(a, b)} + c);
  }
};

// Of 24 bits each: .lo has bits 0 to 31 of the product, .hi has bits 16 to 47.
template <bool IsHigh>
struct Mul24 {
  template <class T>
  T operator()(T a, T b) const {
    const std::int64_t left = static_cast<T>(static_cast<std::uint32_t>(a) << 8) >> 8;
    const std::int64_t right = static_cast<T>(static_cast<std::uint32_t>(b) << 8) >> 8;
    return static_cast<T>(left * right >> (IsHigh ? 16 : 0));
  }
};
struct Mad24HighSat {
  std::int32_t operator()(std::int32_t a, std::int32_t b, std::int32_t c) const {
    return saturated(std::int64_t{Mul24<true>()(a, b)} + c);
  }
};

// dp4a: c and the products of four bytes; dp2a: of two halves of a with two bytes of b.
template <class Left, class Right>
struct Dp4a {
  std::int32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    std::uint32_t sum = c;
    for (int k = 0; k < 32; k += 8)
      sum += static_cast<std::uint32_t>(int{static_cast<Left>(a >> k)} *
                                        int{static_cast<Right>(b >> k)});
    return static_cast<std::int32_t>(sum);
  }
};
template <class Left, class Right, int First>
struct Dp2a {
  std::int32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    std::uint32_t sum = c;
    for (int k = 0; k < 2; ++k)
      sum += static_cast<std::uint32_t>(int{static_cast<Left>(a >> (16 * k))} *
                                        int{static_cast<Right>(b >> (First + 8 * k))});
    return static_cast<std::int32_t>(sum);
  }
};

Handler wide_product(Type type, bool has_sum) {
  return for_integers(type, [&]<class T>() -> Handler {
    if constexpr (sizeof(T) < 8)
      return has_sum ? apply<ProductAndSum<MulWide>, Double<T>, T, T, Double<T>>
                     : apply<MulWide, Double<T>, T, T>;
    else
      return nullptr;
  });
}

void lower_mul(Lowering& lowering) {
  const bool has_sum = lowering.opcode() == "mad";
  if (lowering.has("cc")) return lower_mad_with_carry(lowering);
  const std::string_view half = lowering.take_one_of({"lo", "hi", "wide"});
  const bool is_saturated = lowering.take("sat");
  const Type type = lowering.take_type();
  Type result = type;
  Handler run = nullptr;
  if (half == "wide") {
    run = wide_product(type, has_sum);
    result = bits_of(type) == 16 ? (is_signed(type) ? Type::s32 : Type::u32)
                                 : (is_signed(type) ? Type::s64 : Type::u64);
  } else if (half == "lo") {
    run = for_integers(type, [&]<class T>() -> Handler {
      return has_sum ? apply<ProductAndSum<MulLow>, T, T, T, T> : apply<MulLow, T, T, T>;
    });
  } else if (half == "hi") {
    run = for_integers(type, [&]<class T>() -> Handler {
      return has_sum ? apply<ProductAndSum<MulHigh>, T, T, T, T> : apply<MulHigh, T, T, T>;
    });
  }
  if (is_saturated) {
    if (!has_sum || half != "hi" || type != Type::s32) lowering.refuse();
    run = apply<MadHighSat, std::int32_t, std::int32_t, std::int32_t, std::int32_t>;
  }
  if (run == nullptr) lowering.invalid("it needs .lo, .hi or .wide");
  lowering.expect_operands(has_sum ? 4 : 3, has_sum ? 4 : 3);
  std::vector<Slot> slots = {lowering.target(0, result), lowering.source(1, type),
                             lowering.source(2, type)};
  if (has_sum) slots.push_back(lowering.source(3, result));
  lowering.emit(run, std::move(slots));
}

template <class T>
Handler product_of_24_bits(bool is_high, bool has_sum) {
  if (has_sum)
    return is_high ? apply<ProductAndSum<Mul24<true>>, T, T, T, T>
                   : apply<ProductAndSum<Mul24<false>>, T, T, T, T>;
  return is_high ? apply<Mul24<true>, T, T, T> : apply<Mul24<false>, T, T, T>;
}

void lower_mul24(Lowering& lowering) {
  const bool has_sum = lowering.opcode() == "mad24";
  const bool is_high = lowering.take("hi");
  if (!is_high && !lowering.take("lo")) lowering.invalid("it needs .lo or .hi");
  const bool is_saturated = lowering.take("sat");
  const Type type = lowering.take_type();
  if (type != Type::u32 && type != Type::s32) lowering.invalid("it needs u32 or s32");
  Handler run = type == Type::u32 ? product_of_24_bits<std::uint32_t>(is_high, has_sum)
                                  : product_of_24_bits<std::int32_t>(is_high, has_sum);
  if (is_saturated) {
    if (!has_sum || !is_high || type != Type::s32) lowering.refuse();
    run = apply<Mad24HighSat, std::int32_t, std::int32_t, std::int32_t, std::int32_t>;
  }
  std::vector<Slot> slots = {lowering.target(0, type), lowering.source(1, type),
                             lowering.source(2, type)};
  if (has_sum) slots.push_back(lowering.source(3, type));
  lowering.emit(run, std::move(slots));
}

template <class Left, class Right>
Handler dot_product(bool is_four, bool is_high) {
  using Word = std::uint32_t;
  if (is_four) return apply<Dp4a<Left, Right>, std::int32_t, Word, Word, Word>;
  using Part = std::conditional_t<std::is_signed_v<Left>, std::int16_t, std::uint16_t>;
  return is_high ? apply<Dp2a<Part, Right, 16>, std::int32_t, Word, Word, Word>
                 : apply<Dp2a<Part, Right, 0>, std::int32_t, Word, Word, Word>;
}

void lower_dot_product(Lowering& lowering) {
  const bool is_four = lowering.opcode() == "dp4a";
  const bool is_high = !is_four && lowering.take("hi");
  if (!is_four && !is_high && !lowering.take("lo")) lowering.invalid("it needs .lo or .hi");
  const Type left = lowering.take_type(), right = lowering.take_type();
  using Byte = std::uint8_t;
  using Signed = std::int8_t;
  const Handler run = is_signed(left)
                          ? (is_signed(right) ? dot_product<Signed, Signed>(is_four, is_high)
                                              : dot_product<Signed, Byte>(is_four, is_high))
                          : (is_signed(right) ? dot_product<Byte, Signed>(is_four, is_high)
                                              : dot_product<Byte, Byte>(is_four, is_high));
  lowering.emit(run, {lowering.target(0, Type::b32), lowering.source(1, Type::b32),
                      lowering.source(2, Type::b32), lowering.source(3, Type::b32)});
}

constexpr Opcode multiply_table[] = {
    {"mul", TypeKind::integer, lower_mul},      {"mad", TypeKind::integer, lower_mul},
    {"mul24", TypeKind::integer, lower_mul24},  {"mad24", TypeKind::integer, lower_mul24},
    {"dp4a", TypeKind::any, lower_dot_product}, {"dp2a", TypeKind::any, lower_dot_product},
};

}  // namespace

std::span<const Opcode> multiply_opcodes() { return multiply_table; }

}  // namespace simulate_gpus::ptx
