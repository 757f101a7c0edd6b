// SPDX-License-Identifier: MIT
//
// What simulate_gpus passes to its program in environment variables, which child processes inherit.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu_profiles.hpp"

namespace simulate_gpus {

inline constexpr int k_most_gpus = 16;

/// What a driver keeps for itself: it counts as memory of the GPU and cannot be allocated.
inline constexpr std::uint64_t k_reserved_bytes = std::uint64_t{16} << 20;

/// A dry run leaves device memory alone, but for copies, memory sets and collectives of at most that
/// many bytes: they carry sizes, indices and flags that LibTorch reads back.
inline constexpr std::uint64_t k_most_bytes_in_dry_run = std::uint64_t{64} << 10;

struct Settings {
  int num_cards = 0;               ///< SIMULATE_GPUS
  std::uint64_t memory_bytes = 0;  ///< SIMULATE_GPUS_MEMORY, of each card, as CUDA sees it
  GpuProfile gpu = k_plain_gpu;    ///< SIMULATE_GPUS_GPU, as in --gpu
  std::uint64_t reserved_bytes = k_reserved_bytes;
  bool summary = false;        ///< SIMULATE_GPUS_SUMMARY
  bool dry_run = false;        ///< SIMULATE_GPUS_DRY_RUN
  bool trace = false;          ///< SIMULATE_GPUS_TRACE
  bool deterministic = false;  ///< SIMULATE_GPUS_DETERMINISTIC
  /// SIMULATE_GPUS_TRACE_FILE, as in "1234:/tmp/trace.json". The process of that number writes it;
  /// others, here 5678, write /tmp/trace.5678.json.
  std::string trace_file;
  bool check = false;  ///< SIMULATE_GPUS_CHECK
  /// SIMULATE_GPUS_IGNORE: the operations that --check does not report: "aten::add_,memory set"
  std::vector<std::string> ignored_operations;
  int driver_version = 0;  ///< SIMULATE_GPUS_DRIVER_VERSION: 12040 is one for CUDA 12.4
  /// SIMULATE_GPUS_MEMORY_OF_OTHERS: what other processes use of each card, in bytes: "1048576,0".
  std::vector<std::uint64_t> memory_of_others;
  std::vector<int> visible;  ///< the cards that CUDA_VISIBLE_DEVICES leaves, in its order

  /// Whether LibTorch's memory and operations are followed, by functions of interface.hpp.
  [[nodiscard]] bool is_followed() const { return summary || check || !trace_file.empty(); }
};

/// How the driver names a card.
std::array<unsigned char, 16> card_uuid(int card);

inline namespace interface {  // what the library exports

/// Read once, at the first call.
[[nodiscard]] const Settings& settings();

/// Whether so many bytes of device memory are read or written: all, but in a dry run only a few.
[[nodiscard]] bool touches(std::uint64_t bytes);

/// "GPU-...", of at most 48 characters.
[[nodiscard]] std::string uuid_of_card(int card);

/// The device of a card here; -1 if it is hidden.
[[nodiscard]] int device_of_card(int card);

}  // namespace interface

}  // namespace simulate_gpus
