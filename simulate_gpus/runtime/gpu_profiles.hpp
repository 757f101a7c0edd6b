// SPDX-License-Identifier: MIT
//
// The cards that simulated GPUs can be like (simulate_gpus --gpu NAME).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace simulate_gpus {

struct GpuProfile {
  std::string_view option;  ///< as in --gpu
  const char* name;         ///< as NVML and CUDA show it
  std::uint64_t mebibytes;  ///< all memory, as nvidia-smi shows it
  int major, minor;         ///< the compute capability
  int multiprocessors;
  int l2_mebibytes;
  int watts;                        ///< the power limit
  int memory_bits;                  ///< the width of its bus
  int megahertz, memory_megahertz;  ///< the highest clocks, as nvidia-smi shows them
  bool is_measured =
      false;  ///< whether one answered us; what only that tells is left out of others
  std::uint64_t mebibytes_unseen = 0;  ///< of all memory, what the driver hides from CUDA
  std::uint64_t bytes_of_context = std::uint64_t{1}
                                   << 30;  ///< what is not free, with a context; about
};

/// What a multiprocessor of a compute capability has room for.
struct MultiprocessorLimits {
  int threads, blocks;
  int shared_kibibytes, shared_kibibytes_of_block;  ///< of one block that opts in
};

/// Without --gpu: "Simulated GPU", an H100 with 8 GiB.
inline constexpr GpuProfile k_plain_gpu{
    "", "Simulated GPU", 8192, 9, 0, 132, 50, 700, 5120, 1980, 2619, true};

std::span<const GpuProfile> gpu_profiles();

/// The one of that name; null if there is none.
const GpuProfile* find_gpu_profile(std::string_view option);

MultiprocessorLimits limits_of(const GpuProfile& profile);

}  // namespace simulate_gpus
