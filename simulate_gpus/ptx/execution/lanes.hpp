// The registers of a warp. A register of at most 32 bits has 4 bytes for each lane, wider ones have 8 or 16; a predicate
// is one mask for all lanes. Above the bits of a narrow type anything may stand, so that each use cuts it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ptx/execution/halves.hpp"

// The lanes of a register do not depend on each other, which a compiler cannot know: it may use vectors.
#if defined(__clang__)
#define SIMULATE_GPUS_PTX_LANES _Pragma("clang loop vectorize(assume_safety)")
#else
#define SIMULATE_GPUS_PTX_LANES _Pragma("GCC ivdep")
#endif

namespace simulate_gpus::ptx {

constexpr int lane_count = 32;
using Mask = std::uint32_t;
constexpr Mask all_lanes = ~Mask{0};
using Slot = std::int32_t;  // where a register is in its warp's file, in bytes
constexpr Slot no_slot = -1;

struct Wide {  // b128
  std::uint64_t low = 0, high = 0;
  bool operator==(const Wide&) const = default;
};

constexpr std::size_t lane_bytes(std::size_t bits) { return bits <= 32 ? 4 : bits <= 64 ? 8 : 16; }

struct Lanes {
  std::byte* file = nullptr;

  template <class T>
  T get(Slot slot, int lane) const {
    const std::byte* const place =
        file + slot + static_cast<std::size_t>(lane) * lane_bytes(8 * sizeof(T));
    if constexpr (sizeof(T) < 4) {
      std::uint32_t bits;
      std::memcpy(&bits, place, 4);
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(bits);
      else
        return T{static_cast<std::uint16_t>(bits)};
    } else {
      T value;
      std::memcpy(&value, place, sizeof value);
      return value;
    }
  }

  // Narrow integers fill their 4 bytes with their sign, or with zeros.
  template <class T>
  void put(Slot slot, int lane, T value) const {
    std::byte* const place =
        file + slot + static_cast<std::size_t>(lane) * lane_bytes(8 * sizeof(T));
    if constexpr (sizeof(T) < 4 && std::is_integral_v<T>) {
      const auto wide =
          static_cast<std::int32_t>(value);  // NOLINT(bugprone-signed-char-misuse): numbers
      std::memcpy(place, &wide, 4);
    } else if constexpr (sizeof(T) < 4) {
      const std::uint32_t wide = value.bits;
      std::memcpy(place, &wide, 4);
    } else {
      std::memcpy(place, &value, sizeof value);
    }
  }

  Mask predicate(Slot slot) const {
    Mask mask;
    std::memcpy(&mask, file + slot, sizeof mask);
    return mask;
  }
  // The lanes of `mask` get their bits of `values`.
  void put_predicate(Slot slot, Mask mask, Mask values) const {
    const Mask merged = (predicate(slot) & ~mask) | (values & mask);
    std::memcpy(file + slot, &merged, sizeof merged);
  }
};

constexpr std::array<Mask, lane_count> lane_bits = [] {
  std::array<Mask, lane_count> bits{};
  for (std::size_t lane = 0; lane < bits.size(); ++lane) bits[lane] = Mask{1} << lane;
  return bits;
}();

// The lanes of which the function has all bits set, rather than none. It is called for all of them.
template <class F>
inline Mask lanes_of(F&& function) {
  Mask result = 0;
  SIMULATE_GPUS_PTX_LANES
  for (std::size_t lane = 0; lane < lane_count; ++lane)
    result |= function(static_cast<int>(lane)) & lane_bits[lane];
  return result;
}

// The lanes of which the function is true. By lanes_of a reduction would take 12 % more instructions (GCC 12).
template <class F>
inline Mask lanes_where(F&& function) {
  Mask result = 0;
  SIMULATE_GPUS_PTX_LANES
  for (std::size_t lane = 0; lane < lane_count; ++lane)
    result |= function(static_cast<int>(lane)) ? lane_bits[lane] : 0;
  return result;
}

template <class T>
inline void put_where(std::array<T, lane_count>& values, Mask lanes, T value) {
  for (std::size_t lane = 0; lane < lane_count; ++lane)
    values[lane] = (lanes & lane_bits[lane]) != 0 ? value : values[lane];
}

template <class F>
inline void each_lane(Mask mask, F&& function) {
  for (; mask != 0; mask &= mask - 1) function(std::countr_zero(mask));
}

}  // namespace simulate_gpus::ptx
