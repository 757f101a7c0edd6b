// SPDX-License-Identifier: MIT
//
// What only CUDA's runtime can tell: compiled where LibTorch has CUDA.
#pragma once

#include <optional>

#include "diagnosis/gpu_probe.hpp"

namespace use_gpu::detail {

#ifdef USE_GPU_WITH_CUDA

/// What CUDA answers about its devices. Creates no context.
[[nodiscard]] std::optional<CudaFacts> probe_cuda();

/// Has LibTorch read the settings of its allocator of GPU memory. Throws if it cannot; were that left
/// to the first use of a GPU, the second would crash.
void read_allocator_settings();

#else

inline void read_allocator_settings() {}
inline std::optional<CudaFacts> probe_cuda() { return std::nullopt; }

#endif

}  // namespace use_gpu::detail
