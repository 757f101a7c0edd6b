// The types of PTX.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace simulate_gpus::ptx {

enum class Type : std::uint8_t {
  none,
  pred,
  b8,
  u8,
  s8,
  b16,
  u16,
  s16,
  f16,
  bf16,
  b32,
  u32,
  s32,
  f32,
  tf32,
  f16x2,
  bf16x2,
  u16x2,
  s16x2,
  b64,
  u64,
  s64,
  f64,
  b128,
  e4m3,
  e5m2,
  e4m3x2,
  e5m2x2,
  u4,
  s4,
  u2,
  s2,
  b1,
};

// Type::none, if there is no such type.
Type type_named(std::string_view name);
std::string_view name_of(Type type);
std::size_t bits_of(Type type);
inline std::size_t bytes_of(Type type) { return (bits_of(type) + 7) / 8; }

bool is_integer(Type type);  // u, s, b of 8 to 64 bits
bool is_signed(Type type);
bool is_float(Type type);  // f32, f64
bool is_half(Type type);   // f16, bf16, also of two

}  // namespace simulate_gpus::ptx
