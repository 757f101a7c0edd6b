// SPDX-License-Identifier: MIT
//
// What simulate_gpus passes to its program in environment variables, which child processes inherit.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace simulated_cuda {

inline constexpr int k_most_gpus = 16;

/// What a driver keeps for itself: it counts as memory of the GPU and cannot be allocated.
inline constexpr std::uint64_t k_reserved_bytes = std::uint64_t{16} << 20;

struct Settings {
  int num_cards = 0;               ///< SIMULATE_GPUS
  std::uint64_t memory_bytes = 0;  ///< SIMULATE_GPUS_MEMORY, of each card
  bool summary = false;            ///< SIMULATE_GPUS_SUMMARY
  bool dry_run = false;            ///< SIMULATE_GPUS_DRY_RUN
  bool trace = false;              ///< SIMULATE_GPUS_TRACE
  int driver_version = 0;          ///< SIMULATE_GPUS_DRIVER_VERSION: 12040 is one for CUDA 12.4
  /// SIMULATE_GPUS_MEMORY_OF_OTHERS: what other processes use of each card, in bytes: "1048576,0".
  std::vector<std::uint64_t> memory_of_others;
  std::vector<int> visible;  ///< the cards that CUDA_VISIBLE_DEVICES leaves, in its order
};

/// Read once, at the first call.
const Settings& settings();

/// How the driver names a card; as text "GPU-...".
std::array<unsigned char, 16> card_uuid(int card);
std::string card_uuid_text(int card);

}  // namespace simulated_cuda
