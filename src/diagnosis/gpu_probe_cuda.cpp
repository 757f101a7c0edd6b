// SPDX-License-Identifier: MIT
#include "diagnosis/gpu_probe_cuda.hpp"

#include <c10/cuda/CUDAAllocatorConfig.h>
#include <cuda_runtime_api.h>

namespace use_gpu::detail {
namespace {

static_assert(k_cuda_out_of_memory == int{cudaErrorMemoryAllocation});
static_assert(k_cuda_initialization == int{cudaErrorInitializationError});
static_assert(k_cuda_stub_library == int{cudaErrorStubLibrary});
static_assert(k_cuda_insufficient_driver == int{cudaErrorInsufficientDriver});
static_assert(k_cuda_devices_unavailable == int{cudaErrorDevicesUnavailable});
static_assert(k_cuda_no_device == int{cudaErrorNoDevice});
static_assert(k_cuda_invalid_device == int{cudaErrorInvalidDevice});
static_assert(k_cuda_no_kernel_image == int{cudaErrorNoKernelImageForDevice});
static_assert(k_cuda_operating_system == int{cudaErrorOperatingSystem});
static_assert(k_cuda_not_supported == int{cudaErrorNotSupported});
static_assert(k_cuda_system_not_ready == int{cudaErrorSystemNotReady});
static_assert(k_cuda_compat_not_supported == int{cudaErrorCompatNotSupportedOnDevice});
static_assert(k_cuda_unknown == int{cudaErrorUnknown});

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

std::string model(int index) {
  cudaDeviceProp card;
  if (answer(cudaGetDeviceProperties(&card, index)) != cudaSuccess) return {};
  return std::string(card.name) + ", compute capability " + std::to_string(card.major) + '.' +
         std::to_string(card.minor);
}

}  // namespace

std::optional<CudaFacts> probe_cuda() {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t code = answer(cudaGetDeviceCount(&count));
  answer(cudaDriverGetVersion(&driver));
  answer(cudaRuntimeGetVersion(&runtime));
  CudaFacts facts;
  facts.driver_version = version(driver);
  facts.runtime_version = version(runtime);
  if (code != cudaSuccess) {
    facts.error = {"CUDA error " + std::to_string(code) + ": " + cudaGetErrorString(code), code};
    return facts;
  }
  for (int i = 0; i < count; ++i) facts.models.push_back(model(i));
  return facts;
}

void read_allocator_settings() {
  c10::CachingAllocator::AcceleratorAllocatorConfig::instance();
  c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::instance();
}

}  // namespace use_gpu::detail
