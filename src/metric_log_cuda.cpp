// SPDX-License-Identifier: MIT
#include "metric_log_cuda.hpp"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

namespace use_gpu::detail {

bool is_captured(c10::Stream stream) {
  if (!stream.device().is_cuda()) return false;
  auto status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::CUDAStream(stream), &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace use_gpu::detail
