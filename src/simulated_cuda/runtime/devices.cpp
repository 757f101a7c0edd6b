// SPDX-License-Identifier: MIT
//
// The devices: how many there are, what they are, and the memory that they hand out.
#include "devices.hpp"

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "device_memory.hpp"
#include "errors.hpp"
#include "interface.hpp"
#include "libtorch.hpp"
#include "settings.hpp"
#include "streams.hpp"

namespace use_gpu::simulated_cuda {
namespace {

thread_local int current = 0;
thread_local bool thread_has_context = false;
std::array<std::atomic<bool>, k_most_gpus> contexts;

int num_devices() { return static_cast<int>(settings().visible.size()); }

bool exists(int device) { return device >= 0 && device < num_devices(); }

int card_of(int device) { return settings().visible[static_cast<std::size_t>(device)]; }

// A card of the Hopper generation, with one GPU's worth of everything. Its name says that it is not.
cudaDeviceProp properties_of(int device) {
  cudaDeviceProp properties{};
  std::strcpy(properties.name, "Simulated GPU");
  const auto uuid = card_uuid(card_of(device));
  std::memcpy(properties.uuid.bytes, uuid.data(), uuid.size());
  properties.totalGlobalMem = settings().memory_bytes;
  properties.major = 9;
  properties.minor = 0;
  properties.multiProcessorCount = 132;
  properties.warpSize = 32;
  properties.maxThreadsPerBlock = 1024;
  properties.maxThreadsPerMultiProcessor = 2048;
  properties.maxBlocksPerMultiProcessor = 32;
  properties.maxThreadsDim[0] = properties.maxThreadsDim[1] = 1024;
  properties.maxThreadsDim[2] = 64;
  properties.maxGridSize[0] = 2147483647;
  properties.maxGridSize[1] = properties.maxGridSize[2] = 65535;
  properties.sharedMemPerBlock = 48 << 10;
  properties.sharedMemPerBlockOptin = 227 << 10;
  properties.sharedMemPerMultiprocessor = 228 << 10;
  properties.regsPerBlock = properties.regsPerMultiprocessor = 65536;
  properties.totalConstMem = 64 << 10;
  properties.l2CacheSize = 50 << 20;
  properties.textureAlignment = 512;
  properties.unifiedAddressing = 1;
  properties.concurrentKernels = 1;
  properties.asyncEngineCount = 3;
  properties.streamPrioritiesSupported = 1;
  properties.pciBusID = card_of(device) + 1;
  return properties;
}

int attribute_of(const cudaDeviceProp& properties, cudaDeviceAttr attribute) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      return properties.maxThreadsPerBlock;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return properties.maxThreadsPerMultiProcessor;
    case cudaDevAttrMultiProcessorCount:
      return properties.multiProcessorCount;
    case cudaDevAttrComputeCapabilityMajor:
      return properties.major;
    case cudaDevAttrComputeCapabilityMinor:
      return properties.minor;
    case cudaDevAttrWarpSize:
      return properties.warpSize;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return static_cast<int>(properties.sharedMemPerBlock);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return static_cast<int>(properties.sharedMemPerBlockOptin);
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return static_cast<int>(properties.sharedMemPerMultiprocessor);
    case cudaDevAttrMaxRegistersPerBlock:
      return properties.regsPerBlock;
    case cudaDevAttrMaxGridDimX:
      return properties.maxGridSize[0];
    case cudaDevAttrMaxGridDimY:
      return properties.maxGridSize[1];
    case cudaDevAttrMaxGridDimZ:
      return properties.maxGridSize[2];
    case cudaDevAttrL2CacheSize:
      return properties.l2CacheSize;
    case cudaDevAttrUnifiedAddressing:
      return properties.unifiedAddressing;
    case cudaDevAttrConcurrentKernels:
      return properties.concurrentKernels;
    case cudaDevAttrPciBusId:
      return properties.pciBusID;
    default:
      return 0;  // what this card does not have
  }
}

}  // namespace

int current_device() { return current; }

void make_context(int device) {
  thread_has_context = true;
  note_use();
  contexts[static_cast<std::size_t>(device)] = true;
}

bool has_context(int device) {
  return exists(device) && contexts[static_cast<std::size_t>(device)];
}

}  // namespace use_gpu::simulated_cuda

using namespace use_gpu::simulated_cuda;

extern "C" {

bool simulated_cuda_has_context(int device) { return has_context(device); }
bool simulated_cuda_thread_has_context() { return thread_has_context; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  SIMULATED_CUDA_ENTER();
  note_use();
  meet_libtorch();
  *count = num_devices();
  return *count > 0 ? cudaSuccess : fail(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  SIMULATED_CUDA_ENTER();
  if (num_devices() == 0) return fail(cudaErrorNoDevice);
  *device = current;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  SIMULATED_CUDA_ENTER();
  if (num_devices() == 0) return fail(cudaErrorNoDevice);
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  current = device;
  make_context(device);
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  SIMULATED_CUDA_ENTER();
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  SIMULATED_CUDA_ENTER();
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  SIMULATED_CUDA_ENTER();
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  *properties = properties_of(device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  SIMULATED_CUDA_ENTER();
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  *value = attribute_of(properties_of(device), attribute);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  SIMULATED_CUDA_ENTER();
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  std::snprintf(id, static_cast<std::size_t>(size), "0000:%02x:00.0", card_of(device) + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  SIMULATED_CUDA_ENTER();
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  SIMULATED_CUDA_ENTER();
  if (!exists(device) || !exists(peer)) return fail(cudaErrorInvalidDevice);
  *can = device != peer;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  SIMULATED_CUDA_ENTER();
  return exists(peer) ? cudaSuccess : fail(cudaErrorInvalidDevice);
}

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  SIMULATED_CUDA_ENTER();
  if (num_devices() == 0) return fail(cudaErrorNoDevice);
  make_context(current);
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  *address = allocate(current, bytes);
  return *address ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* address) {
  SIMULATED_CUDA_ENTER();
  if (num_devices() == 0) return fail(cudaErrorNoDevice);
  make_context(current);
  if (address == nullptr) return cudaSuccess;
  finish_all();  // cudaFree waits for the device
  return release(address) ? cudaSuccess : fail(cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  SIMULATED_CUDA_ENTER();
  if (num_devices() == 0) return fail(cudaErrorNoDevice);
  make_context(current);
  *total = settings().memory_bytes;
  *free = settings().memory_bytes - k_reserved_bytes - allocated_bytes(current);
  return cudaSuccess;
}

// Functions of the driver: those that its stand-in has (driver.cpp), and for all others one that
// refuses. LibTorch 2.15 looks all up when it starts, and throws where one is missing.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  SIMULATED_CUDA_ENTER();
  static void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  void* const found = driver ? dlsym(driver, name) : nullptr;
  static const auto refuse = +[]() -> int { return cudaErrorNotSupported; };
  *function = found ? found : reinterpret_cast<void*>(refuse);
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }
}
