// SPDX-License-Identifier: MIT
//
// What only CUDA's runtime can tell: compiled where LibTorch has CUDA.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>

#include "diagnosis/explanation.hpp"

namespace use_gpu::detail {

#ifdef USE_GPU_WITH_CUDA

/// What CUDA answers about its devices. Creates no context.
[[nodiscard]] std::optional<CudaFacts> probe_cuda();

/// ProbedGpu::model of a device. Creates no context.
[[nodiscard]] std::string cuda_model(c10::Device device);

/// RuntimeError::name of a cudaError_t.
[[nodiscard]] std::string cuda_error_name(int code);

/// Has LibTorch read the settings of its allocator of GPU memory. Throws if it cannot; were that left
/// to the first use of a GPU, the second would crash.
void read_allocator_settings();

#else

inline std::optional<CudaFacts> probe_cuda() { return std::nullopt; }
inline std::string cuda_model(c10::Device) { return {}; }
inline std::string cuda_error_name(int) { return {}; }
inline void read_allocator_settings() {}

#endif

}  // namespace use_gpu::detail
