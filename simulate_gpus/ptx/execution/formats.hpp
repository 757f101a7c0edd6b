// Exact rounding of numbers to any of PTX's formats of floats, in each of its rounding modes.
#pragma once

#include <cstdint>

#include "ptx/reader/types.hpp"

namespace simulate_gpus::ptx {

enum class Rounding : std::uint8_t {
  nearest,
  zero,
  down,
  up,
  away
};  // rn rz rm rp; rna: ties away from zero

struct Format {
  int exponent_bits = 0, fraction_bits = 0;
  int cleared_bits = 0;  // at the end: tf32 has the layout of f32 and 13 bits less
  bool has_infinity = true;
  std::uint64_t nan = 0, largest = 0;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
// Of f16, bf16, f32, tf32, f64, e4m3, e5m2.
const Format& format_of(Type type);

// The bits of (-1)^is_negative * whole * 2^exponent. `finite`: .satfinite, which has the largest number for infinity.
std::uint64_t encode(const Format& format, bool is_negative, std::uint64_t whole, int exponent,
                     Rounding rounding, bool finite);
std::uint64_t encode(const Format& format, double value, Rounding rounding, bool finite);

// Exact: all formats are within double.
double decode(const Format& format, std::uint64_t bits);

// To a whole number.
double round_to_integer(double value, Rounding rounding);

// a + b, whose last bit is set if other bits were lost: what is rounded once more, to fewer bits, is then right.
double add_to_odd(double a, double b);

}  // namespace simulate_gpus::ptx
