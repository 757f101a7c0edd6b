// SPDX-License-Identifier: MIT
//
// CUDA graphs, which have no device-generic form: compiled where LibTorch has CUDA.
#pragma once

#include <c10/core/Stream.h>

namespace use_gpu::detail {

#ifdef USE_GPU_WITH_CUDA

/// Whether a CUDA graph is being captured from that stream.
[[nodiscard]] bool is_captured(c10::Stream stream);

#else

inline bool is_captured(c10::Stream) { return false; }

#endif

}  // namespace use_gpu::detail
