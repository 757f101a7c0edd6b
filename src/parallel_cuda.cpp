// SPDX-License-Identifier: MIT
#include "parallel_cuda.hpp"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

namespace use_gpu::detail {

void bind_context(c10::Device device) {
  if (device.is_cuda()) C10_CUDA_CHECK(c10::cuda::SetDevice(device.index(), /*force=*/true));
}

}  // namespace use_gpu::detail
