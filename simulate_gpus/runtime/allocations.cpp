// SPDX-License-Identifier: MIT
#include <cuda_runtime_api.h>

#include <cstdint>

#include "capture_modes.hpp"
#include "device_memory.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "peers.hpp"
#include "pinned_memory.hpp"
#include "program_module.hpp"
#include "settings.hpp"
#include "streams.hpp"
#include "tool.hpp"

using namespace simulate_gpus;

extern "C" {

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, address);
  if (const cudaError_t refused = refuse_unsafe()) return refused;
  make_context(current_device());
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  *address = allocate(current_device(), bytes);
  if (*address == nullptr) return fail(cudaErrorMemoryAllocation);
  tell(&Tool::allocates, current_device());
  return cudaSuccess;
}

// Each row begins where a texture may begin.
cudaError_t cudaMallocPitch(void** address, std::size_t* pitch, std::size_t width,
                            std::size_t height) {
  SIMULATE_GPUS_PASS_ON();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, address, pitch);
  constexpr std::size_t k_alignment = 512;
  if (width > SIZE_MAX - k_alignment) return fail(cudaErrorMemoryAllocation);
  *pitch = (width + k_alignment - 1) / k_alignment * k_alignment;
  if (height > 0 && *pitch > SIZE_MAX / height) return fail(cudaErrorMemoryAllocation);
  return cudaMalloc(address, *pitch * height);
}

cudaError_t cudaFree(void* address) {
  SIMULATE_GPUS_ENTER();
  make_context(current_device());
  if (address == nullptr) return cudaSuccess;
  if (const cudaError_t refused = refuse_unsafe()) return refused;
  finish_all();  // cudaFree waits for the device
  const auto device = device_at(address);
  if (!device && release_managed(address)) return cudaSuccess;
  if (!release(address)) return fail(cudaErrorInvalidValue);
  tell(&Tool::allocates, *device);
  return cudaSuccess;
}

// Ends the context with all device memory in it, but that of the driver's handles. CUDA leaves undefined what becomes of its streams,
// events and pinned memory when they are used again: here they are as before.
cudaError_t cudaDeviceReset() {
  SIMULATE_GPUS_ENTER();
  const int device = current_device();
  if (const cudaError_t refused = refuse_device_wait(device)) return refused;
  finish_all();
  forget_modules(device);
  forget_peers(device);
  release_all(device);
  tell(&Tool::allocates, device);
  end_context(device);
  return take_failure();
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  SIMULATE_GPUS_ENTER();
  make_context(current_device());
  if (total) *total = settings().memory_bytes;
  if (free) *free = free_bytes(current_device());
  return cudaSuccess;
}
}
