// f16 and bf16: their bits, and what they are as floats. Arithmetic of f16 is done in float and of bf16 in double: they
// are wide enough that the second rounding never changes a sum or a product. (For fma that does not hold; see there.)
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace simulate_gpus::ptx {

struct Half {
  std::uint16_t bits = 0;
};
struct BFloat {
  std::uint16_t bits = 0;
};

// Without branches, so that loops over lanes become vector instructions.
inline float to_float(Half half) {
  const std::uint32_t magnitude = std::uint32_t{half.bits} & 0x7FFF;
  // The exponent has another bias; the product with a power of two corrects it, and makes denormals normal.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  const std::uint32_t usual = std::bit_cast<std::uint32_t>(scaled);
  const std::uint32_t special = magnitude << 13 | 0x7F800000;
  const std::uint32_t sign = (std::uint32_t{half.bits} & 0x8000) << 16;
  return std::bit_cast<float>((magnitude >= 0x7C00 ? special : usual) | sign);
}
inline float to_float(BFloat value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}
inline float to_float(float value) { return value; }

// To the nearest, ties to even; a NaN is 0x7FFF, as on the card.
inline Half to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  // Normal results: rounding is an addition below the last bit that stays.
  const std::uint32_t normal = (magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  // Denormal ones: the addition of 1/2 leaves their bits at the end, rounded by the host.
  const std::uint32_t denormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000;
  std::uint32_t result = magnitude < 0x38800000 ? denormal : normal;
  result = magnitude >= 0x477FF000 ? 0x7C00 : result;
  result |= bits >> 16 & 0x8000;
  result = magnitude > 0x7F800000 ? 0x7FFF : result;
  return {static_cast<std::uint16_t>(result)};
}
inline BFloat to_bfloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  return {static_cast<std::uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FFF : rounded)};
}

// A double with more bits than a float: the last bit of the float says that others were lost, so that the next rounding
// is right.
inline float to_odd_float(double value) {
  const auto nearest = static_cast<float>(value);
  const double error = value - static_cast<double>(nearest);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (!(error != 0) || (bits & 1) != 0 || !std::isfinite(nearest)) return nearest;
  const bool is_too_small = (error > 0) == !std::signbit(value);
  return std::bit_cast<float>(is_too_small ? bits + 1 : bits - 1);
}
inline BFloat to_bfloat(double value) {
  // A finite double above all floats rounds to infinity either way.
  return to_bfloat(to_odd_float(value));
}
inline Half to_half(double value) { return to_half(to_odd_float(value)); }

}  // namespace simulate_gpus::ptx
