// SPDX-License-Identifier: MIT
#include <cuda_runtime_api.h>

#include "device_memory.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "settings.hpp"
#include "streams.hpp"

using namespace simulated_cuda;

extern "C" {

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  SIMULATED_CUDA_ENTER();
  make_context(current_device());
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  *address = allocate(current_device(), bytes);
  return *address ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* address) {
  SIMULATED_CUDA_ENTER();
  make_context(current_device());
  if (address == nullptr) return cudaSuccess;
  finish_all();  // cudaFree waits for the device
  return release(address) ? cudaSuccess : fail(cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  SIMULATED_CUDA_ENTER();
  make_context(current_device());
  *total = settings().memory_bytes;
  *free = free_bytes(current_device());
  return cudaSuccess;
}
}
