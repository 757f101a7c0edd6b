// SPDX-License-Identifier: MIT
//
// Which card a CUDA device is, which has no device-generic form: compiled where LibTorch has CUDA.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

namespace use_gpu::detail {

struct CudaCard {
  std::string uuid;  // as NVML writes it, "GPU-12345678-..."
  std::uint64_t total_bytes = 0;
};

#ifdef USE_GPU_WITH_CUDA

/// The card of a CUDA device. Makes no context. Nothing for another device.
[[nodiscard]] std::optional<CudaCard> cuda_card(c10::Device device);

#else

inline std::optional<CudaCard> cuda_card(c10::Device) { return std::nullopt; }

#endif

}  // namespace use_gpu::detail
