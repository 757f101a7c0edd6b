#include "ptx/execution/formats.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace simulate_gpus::ptx {
namespace {

constexpr Format format_f16{5, 10, 0, true, 0x7FFF, 0x7BFF};
constexpr Format format_bf16{8, 7, 0, true, 0x7FFF, 0x7F7F};
constexpr Format format_f32{8, 23, 0, true, 0x7FFFFFFF, 0x7F7FFFFF};
constexpr Format format_tf32{8, 23, 13, true, 0x7FFFE000, 0x7F7FE000};
constexpr Format format_f64{11, 52, 0, true, 0x7FF8000000000000, 0x7FEFFFFFFFFFFFFF};
constexpr Format format_e4m3{4, 3, 0, false, 0x7F, 0x7E};
constexpr Format format_e5m2{5, 2, 0, true, 0x7F, 0x7B};

bool rounds_up(std::uint64_t whole, std::uint64_t rest, std::uint64_t half, bool is_negative,
               Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest:
      return rest > half || (rest == half && (whole & 1) != 0);
    case Rounding::away:
      return rest >= half;
    case Rounding::zero:
      return false;
    case Rounding::down:
      return rest != 0 && is_negative;
    case Rounding::up:
      return rest != 0 && !is_negative;
  }
  return false;
}

}  // namespace

const Format& format_of(Type type) {
  switch (type) {
    case Type::f16:
    case Type::f16x2:
      return format_f16;
    case Type::bf16:
    case Type::bf16x2:
      return format_bf16;
    case Type::tf32:
      return format_tf32;
    case Type::f64:
      return format_f64;
    case Type::e4m3:
    case Type::e4m3x2:
      return format_e4m3;
    case Type::e5m2:
    case Type::e5m2x2:
      return format_e5m2;
    default:
      return format_f32;
  }
}

std::uint64_t encode(const Format& format, bool is_negative, std::uint64_t whole, int exponent,
                     Rounding rounding, bool finite) {
  const std::uint64_t sign = std::uint64_t{is_negative}
                             << (format.exponent_bits + format.fraction_bits);
  if (whole == 0) return sign;
  const int lowest = 1 - format.bias();
  const int top = std::max(exponent + static_cast<int>(std::bit_width(whole)) - 1, lowest);
  const int shift = top - format.fraction_bits + format.cleared_bits - exponent;
  std::uint64_t kept = whole, rest = 0, half = 1;
  if (shift > 63) {  // less than half of the last place, or, of 64 bits, perhaps more
    kept = 0;
    rest = shift == 64 ? (whole >> 1) + (whole & 1) : 1;
    half = shift == 64 ? std::uint64_t{1} << 62 : 2;
  } else if (shift > 0) {
    kept = whole >> shift;
    rest = whole & ((std::uint64_t{1} << shift) - 1);
    half = std::uint64_t{1} << (shift - 1);
  } else {
    kept = whole << -shift;
  }
  if (rounds_up(kept, rest, half, is_negative, rounding)) ++kept;
  kept <<= format.cleared_bits;
  const std::uint64_t bits =
      (static_cast<std::uint64_t>(top + format.bias() - 1) << format.fraction_bits) + kept;
  if (bits <= format.largest) return sign | bits;
  const bool is_inward = rounding == Rounding::zero ||
                         (rounding == Rounding::down && !is_negative) ||
                         (rounding == Rounding::up && is_negative);
  if (finite || is_inward) return sign | format.largest;
  if (!format.has_infinity) return sign | format.nan;
  return sign | (((std::uint64_t{1} << format.exponent_bits) - 1) << format.fraction_bits);
}

std::uint64_t encode(const Format& format, double value, Rounding rounding, bool finite) {
  if (std::isnan(value)) return format.nan;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const bool is_negative = bits >> 63 != 0;
  const int field = static_cast<int>(bits >> 52 & 0x7FF);
  const std::uint64_t fraction = bits & 0xFFFFFFFFFFFFF;
  if (field == 0x7FF) {
    const std::uint64_t sign = std::uint64_t{is_negative}
                               << (format.exponent_bits + format.fraction_bits);
    if (finite) return sign | format.largest;
    if (!format.has_infinity) return sign | format.nan;
    return sign | (((std::uint64_t{1} << format.exponent_bits) - 1) << format.fraction_bits);
  }
  const std::uint64_t whole = field == 0 ? fraction : fraction | std::uint64_t{1} << 52;
  return encode(format, is_negative, whole, std::max(field, 1) - 1075, rounding, finite);
}

double decode(const Format& format, std::uint64_t bits) {
  const std::uint64_t magnitude =
      bits & ((std::uint64_t{1} << (format.exponent_bits + format.fraction_bits)) - 1);
  const bool is_negative = (bits >> (format.exponent_bits + format.fraction_bits) & 1) != 0;
  const int field = static_cast<int>(magnitude >> format.fraction_bits);
  const std::uint64_t fraction = magnitude & ((std::uint64_t{1} << format.fraction_bits) - 1);
  double value = 0;
  if (!format.has_infinity && magnitude == format.nan) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (format.has_infinity && field == (1 << format.exponent_bits) - 1) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else {
    const std::uint64_t whole =
        field == 0 ? fraction : fraction | std::uint64_t{1} << format.fraction_bits;
    value = std::ldexp(static_cast<double>(whole),
                       std::max(field, 1) - format.bias() - format.fraction_bits);
  }
  return is_negative ? -value : value;
}

double round_to_integer(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::zero:
      return std::trunc(value);
    case Rounding::down:
      return std::floor(value);
    case Rounding::up:
      return std::ceil(value);
    case Rounding::away:
      return std::round(value);
    case Rounding::nearest:
      break;
  }
  return std::nearbyint(value);
}

double add_to_odd(double a, double b) {
  const double sum = a + b;
  if (!std::isfinite(sum)) return sum;
  const double from_b = sum - a;
  const double error = (a - (sum - from_b)) + (b - from_b);
  const auto bits = std::bit_cast<std::uint64_t>(sum);
  if (error == 0 || (bits & 1) != 0) return sum;
  const bool is_too_small = (error > 0) == (sum > 0);
  return std::bit_cast<double>(is_too_small ? bits + 1 : bits - 1);
}

}  // namespace simulate_gpus::ptx
