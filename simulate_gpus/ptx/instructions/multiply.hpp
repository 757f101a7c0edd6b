// Parts of products.
#pragma once

#include <cstdint>
#include <type_traits>

namespace simulate_gpus::ptx {

class Lowering;

// The type with twice the bits.
template <class T>
struct DoubleOf;
// clang-format off
template <> struct DoubleOf<std::uint16_t> { using type = std::uint32_t; };
template <> struct DoubleOf<std::int16_t> { using type = std::int32_t; };
template <> struct DoubleOf<std::uint32_t> { using type = std::uint64_t; };
template <> struct DoubleOf<std::int32_t> { using type = std::int64_t; };
__extension__ template <> struct DoubleOf<std::uint64_t> { using type = unsigned __int128; };
__extension__ template <> struct DoubleOf<std::int64_t> { using type = __int128; };
// clang-format on
template <class T>
using Double = typename DoubleOf<T>::type;

template <class T>
T low_product(T a, T b) {
  return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}
template <class T>
T high_product(T a, T b) {
  return static_cast<T>(static_cast<Double<T>>(a) * static_cast<Double<T>>(b) >> (8 * sizeof(T)));
}

// mad.cc, which carry.cpp has.
void lower_mad_with_carry(Lowering& lowering);

}  // namespace simulate_gpus::ptx
