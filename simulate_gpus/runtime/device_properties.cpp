// SPDX-License-Identifier: MIT
#include "device_properties.hpp"

#include <cuda_runtime_api.h>

#include <cstring>

#include "settings.hpp"

namespace simulated_cuda {

// The properties of a Hopper GPU. Only the name shows that it is simulated.
cudaDeviceProp properties_of(int card) {
  cudaDeviceProp properties{};
  std::strcpy(properties.name, "Simulated GPU");
  const auto uuid = card_uuid(card);
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
  properties.pciBusID = card + 1;
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

}  // namespace simulated_cuda
