// Matrices that the registers of a warp hold.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ptx/execution/warp.hpp"
#include "ptx/instructions/floats.hpp"

namespace simulate_gpus::ptx {

struct Shape {
  int m = 0, n = 0, k = 0;
};
// m16n8k16; zeros, if it is none.
Shape shape_named(std::string_view name);

// The numbers with which products of elements are summed: float, double or 64-bit integers. All products are exact.
template <class Sum>
Sum element_of(Type type, std::uint64_t bits) {
  if constexpr (std::is_same_v<Sum, std::int64_t>) {
    const std::size_t width = bits_of(type);
    const std::uint64_t value = bits & ((std::uint64_t{1} << width) - 1);
    const bool is_negative = is_signed(type) && (value >> (width - 1) & 1) != 0;
    return static_cast<std::int64_t>(is_negative ? value | ~((std::uint64_t{1} << width) - 1)
                                                 : value);
  } else if constexpr (std::is_same_v<Sum, double>) {
    return std::bit_cast<double>(bits);
  } else {
    switch (type) {
      case Type::f16:
        return to_float(Half{static_cast<std::uint16_t>(bits)});
      case Type::bf16:
        return to_float(BFloat{static_cast<std::uint16_t>(bits)});
      case Type::tf32:  // its last bits do not count
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits) & 0xFFFFE000);
      case Type::f32:
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      default:
        return static_cast<float>(decode(format_of(type), bits));
    }
  }
}

// The bits of a sum. Integers wrap around, or are clamped.
template <class Sum>
std::uint64_t sum_bits(Type type, Sum sum, bool clamps) {
  if constexpr (std::is_same_v<Sum, std::int64_t>) {
    if (clamps) sum = sum > 0x7FFFFFFF ? 0x7FFFFFFF : sum < -0x80000000LL ? -0x80000000LL : sum;
    return static_cast<std::uint32_t>(sum);
  } else if constexpr (std::is_same_v<Sum, double>) {
    return std::bit_cast<std::uint64_t>(sum);
  } else {
    return type == Type::f16 ? to_half(sum).bits
                             : std::bit_cast<std::uint32_t>(rounded_to<float>(sum));
  }
}

// c += a b, by rows: a is m x k, b is k x n.
template <class Sum>
void multiply_matrices(const Shape& shape, const Sum* a, const Sum* b, Sum* c) {
  for (int row = 0; row < shape.m; ++row) {
    Sum* const sums = c + row * shape.n;
    for (int step = 0; step < shape.k; ++step) {
      const Sum factor = a[row * shape.k + step];
      const Sum* const factors = b + step * shape.n;
      for (int column = 0; column < shape.n; ++column) sums[column] += factor * factors[column];
    }
  }
}

}  // namespace simulate_gpus::ptx
