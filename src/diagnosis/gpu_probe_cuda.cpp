// SPDX-License-Identifier: MIT
#include "diagnosis/gpu_probe_cuda.hpp"

#include <c10/cuda/CUDAAllocatorConfig.h>
#include <cuda_runtime_api.h>

namespace use_gpu::detail {
namespace {

// The result of a CUDA call. Clears CUDA's last error, which LibTorch would otherwise read after
// the program's next kernel.
cudaError_t answer(cudaError_t code) {
  if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
  return code;
}

// CUDA writes 12.4 as 12040, and no version as 0.
std::string version(int number) {
  if (number == 0) return {};
  return std::to_string(number / 1000) + '.' + std::to_string(number % 1000 / 10);
}

}  // namespace

std::optional<CudaFacts> probe_cuda() {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t code = answer(cudaGetDeviceCount(&count));
  answer(cudaDriverGetVersion(&driver));
  answer(cudaRuntimeGetVersion(&runtime));
  CudaFacts facts{.driver_version = version(driver), .runtime_version = version(runtime)};
  if (code != cudaSuccess)
    facts.error = {"CUDA error " + std::to_string(code) + ": " + cudaGetErrorString(code),
                   cudaGetErrorName(code)};
  return facts;
}

std::string cuda_model(c10::Device device) {
  cudaDeviceProp card;
  if (!device.is_cuda() || answer(cudaGetDeviceProperties(&card, device.index())) != cudaSuccess)
    return {};
  return std::string(card.name) + ", compute capability " + std::to_string(card.major) + '.' +
         std::to_string(card.minor);
}

std::string cuda_error_name(int code) { return cudaGetErrorName(static_cast<cudaError_t>(code)); }

void read_allocator_settings() {
  c10::CachingAllocator::AcceleratorAllocatorConfig::instance();
  c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::instance();
}

}  // namespace use_gpu::detail
