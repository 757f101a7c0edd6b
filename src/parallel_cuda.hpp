// SPDX-License-Identifier: MIT
//
// CUDA contexts, which have no device-generic form: compiled where LibTorch has CUDA.
#pragma once

#include <c10/core/Device.h>

namespace use_gpu::detail {

#ifdef USE_GPU_WITH_CUDA

/// Makes the context of a CUDA device this thread's current one. LibTorch's guards skip that for
/// GPU 0 in a new thread, and its first use of cuBLAS there then warns "there was no current CUDA
/// context".
void bind_context(c10::Device device);

#else

inline void bind_context(c10::Device) {}

#endif

}  // namespace use_gpu::detail
