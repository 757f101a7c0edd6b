// SPDX-License-Identifier: MIT
#include <cuda_runtime_api.h>

#include "device_memory.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "settings.hpp"
#include "streams.hpp"
#include "tool.hpp"

using namespace simulate_gpus;

extern "C" {

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  SIMULATE_GPUS_ENTER();
  make_context(current_device());
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  *address = allocate(current_device(), bytes);
  if (*address == nullptr) return fail(cudaErrorMemoryAllocation);
  tell(&Tool::allocates, current_device());
  return cudaSuccess;
}

cudaError_t cudaFree(void* address) {
  SIMULATE_GPUS_ENTER();
  make_context(current_device());
  if (address == nullptr) return cudaSuccess;
  finish_all();  // cudaFree waits for the device
  const auto device = device_at(address);
  if (!release(address)) return fail(cudaErrorInvalidValue);
  tell(&Tool::allocates, *device);
  return cudaSuccess;
}

// Ends the context with all device memory in it, but that of the driver's handles. CUDA leaves undefined what becomes of its streams,
// events and pinned memory when they are used again: here they are as before.
cudaError_t cudaDeviceReset() {
  SIMULATE_GPUS_ENTER();
  const int device = current_device();
  if (is_capturing_on(device)) return fail(cudaErrorStreamCaptureUnsupported);
  finish_all();
  release_all(device);
  tell(&Tool::allocates, device);
  end_context(device);
  return take_failure();
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  SIMULATE_GPUS_ENTER();
  make_context(current_device());
  *total = settings().memory_bytes;
  *free = free_bytes(current_device());
  return cudaSuccess;
}
}
