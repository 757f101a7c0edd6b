// SPDX-License-Identifier: MIT
#include "timing/timing_cuda.hpp"

#include <ATen/cuda/CUDAContext.h>

std::string model_of(c10::Device device) {
  return device.is_cuda() ? at::cuda::getDeviceProperties(device.index())->name : "";
}
