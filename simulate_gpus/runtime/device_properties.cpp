// SPDX-License-Identifier: MIT
#include "device_properties.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstring>

#include "settings.hpp"

namespace simulate_gpus {

// Those of a real card. Only the name shows that it is simulated.
cudaDeviceProp properties_of(int card) {
  const GpuProfile& gpu = settings().gpu;
  const MultiprocessorLimits limits = limits_of(gpu);
  cudaDeviceProp properties{};
  std::strcpy(properties.name, gpu.name);
  const auto uuid = card_uuid(card);
  std::memcpy(properties.uuid.bytes, uuid.data(), uuid.size());
  properties.totalGlobalMem = settings().memory_bytes;
  properties.major = gpu.major;
  properties.minor = gpu.minor;
  properties.multiProcessorCount = gpu.multiprocessors;
  properties.warpSize = 32;
  properties.maxThreadsPerBlock = 1024;
  properties.maxThreadsPerMultiProcessor = limits.threads;
  properties.maxBlocksPerMultiProcessor = limits.blocks;
  properties.maxThreadsDim[0] = properties.maxThreadsDim[1] = 1024;
  properties.maxThreadsDim[2] = 64;
  properties.maxGridSize[0] = 2147483647;
  properties.maxGridSize[1] = properties.maxGridSize[2] = 65535;
  properties.sharedMemPerBlock = 48 << 10;
  const auto kibibytes = [](int count) { return static_cast<std::size_t>(count) << 10; };
  properties.sharedMemPerBlockOptin = kibibytes(limits.shared_kibibytes_of_block);
  properties.sharedMemPerMultiprocessor = kibibytes(limits.shared_kibibytes);
  properties.regsPerBlock = properties.regsPerMultiprocessor = 65536;
  properties.totalConstMem = 64 << 10;
  properties.l2CacheSize = gpu.l2_mebibytes << 20;
  properties.textureAlignment = 512;
  properties.unifiedAddressing = 1;
  properties.concurrentKernels = 1;
  properties.asyncEngineCount = 3;
  properties.streamPrioritiesSupported = 1;
  properties.pciBusID = card + 1;
  return properties;
}

int attribute_of(const cudaDeviceProp& properties, cudaDeviceAttr attribute) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      return properties.maxThreadsPerBlock;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return properties.maxThreadsPerMultiProcessor;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return properties.maxBlocksPerMultiProcessor;
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
    // No process reaches the memory of another's. TensorPipe, which carries RPC, then takes other ways
    // than CUDA IPC.
    case cudaDevAttrComputeMode:
      return cudaComputeModeExclusiveProcess;
    case cudaDevAttrConcurrentKernels:
      return properties.concurrentKernels;
    case cudaDevAttrPciBusId:
      return properties.pciBusID;
    default:
      return 0;  // what this card does not have
  }
}

}  // namespace simulate_gpus
