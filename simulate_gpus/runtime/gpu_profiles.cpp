// SPDX-License-Identifier: MIT
#include "gpu_profiles.hpp"

#include <algorithm>
#include <iterator>

namespace simulate_gpus {
namespace {

// Of NVIDIA's data sheets, and of what nvidia-smi and cudaGetDeviceProperties show.
constexpr GpuProfile k_profiles[] = {
    {"t4", "Simulated Tesla T4", 15360, 7, 5, 40, 4, 70, 256, 1590, 5001},
    {"v100", "Simulated Tesla V100-SXM2-16GB", 16384, 7, 0, 80, 6, 300, 4096, 1530, 877},
    {"v100-32", "Simulated Tesla V100-SXM2-32GB", 32768, 7, 0, 80, 6, 300, 4096, 1530, 877},
    {"a10", "Simulated NVIDIA A10", 23028, 8, 6, 72, 6, 150, 384, 1695, 6251},
    {"a100-40", "Simulated NVIDIA A100-SXM4-40GB", 40960, 8, 0, 108, 40, 400, 5120, 1410, 1215},
    {"a100-80", "Simulated NVIDIA A100-SXM4-80GB", 81920, 8, 0, 108, 40, 400, 5120, 1410, 1593},
    {"l4", "Simulated NVIDIA L4", 23034, 8, 9, 58, 48, 72, 192, 2040, 6251},
    {"l40s", "Simulated NVIDIA L40S", 46068, 8, 9, 142, 96, 350, 384, 2520, 9001},
    {"rtx3090", "Simulated NVIDIA GeForce RTX 3090", 24576, 8, 6, 82, 6, 350, 384, 2100, 9751},
    {"rtx4090", "Simulated NVIDIA GeForce RTX 4090", 24564, 8, 9, 128, 72, 450, 384, 3105, 10501},
    {"rtx5090", "Simulated NVIDIA GeForce RTX 5090", 32607, 12, 0, 170, 96, 575, 512, 3090, 14001},
    {"h100", "Simulated NVIDIA H100 80GB HBM3", 81559, 9, 0, 132, 50, 700, 5120, 1980, 2619, true,
     480, 577175552},  // driver 580.159.04
    {"h200", "Simulated NVIDIA H200", 143771, 9, 0, 132, 60, 700, 6144, 1980, 3201},
    {"b200", "Simulated NVIDIA B200", 183359, 10, 0, 148, 126, 1000, 8192, 1965, 3996}};

}  // namespace

std::span<const GpuProfile> gpu_profiles() { return k_profiles; }

const GpuProfile* find_gpu_profile(std::string_view option) {
  const auto* const found = std::ranges::find(k_profiles, option, &GpuProfile::option);
  return found == std::end(k_profiles) ? nullptr : found;
}

// The table "Technical specifications per compute capability" of the CUDA programming guide.
MultiprocessorLimits limits_of(const GpuProfile& profile) {
  switch (profile.major * 10 + profile.minor) {
    case 70:
      return {2048, 32, 96, 96};
    case 75:
      return {1024, 16, 64, 64};
    case 80:
      return {2048, 32, 164, 163};
    case 86:
      return {1536, 16, 100, 99};
    case 89:
    case 120:
      return {1536, 24, 100, 99};
    default:  // 9.0 and 10.0
      return {2048, 32, 228, 227};
  }
}

}  // namespace simulate_gpus
