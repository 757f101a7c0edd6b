// SPDX-License-Identifier: MIT
//
// CUDA graphs have no device-generic form. Compiled where LibTorch was built for CUDA.
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

namespace use_gpu {

bool is_captured(c10::Stream stream) {
  auto status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::CUDAStream(stream), &status));
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace use_gpu
