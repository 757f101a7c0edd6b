// SPDX-License-Identifier: MIT
#include "device_properties.hpp"

#include <cuda_runtime_api.h>

#include <cstring>
#include <type_traits>

#include "device_attributes.hpp"
#include "settings.hpp"

namespace simulate_gpus {

// Those of a real card. Only the name shows that it is simulated.
cudaDeviceProp properties_of(int card) {
  cudaDeviceProp properties{};
  const auto fill = [card](auto& property, int attribute) {
    property =
        static_cast<std::remove_reference_t<decltype(property)>>(*attribute_of(card, attribute));
  };
  std::strcpy(properties.name, settings().gpu.name);
  const auto uuid = card_uuid(card);
  std::memcpy(properties.uuid.bytes, uuid.data(), uuid.size());
  properties.totalGlobalMem = settings().memory_bytes;
  fill(properties.major, cudaDevAttrComputeCapabilityMajor);
  fill(properties.minor, cudaDevAttrComputeCapabilityMinor);
  fill(properties.multiProcessorCount, cudaDevAttrMultiProcessorCount);
  fill(properties.warpSize, cudaDevAttrWarpSize);
  fill(properties.memPitch, cudaDevAttrMaxPitch);
  fill(properties.maxThreadsPerBlock, cudaDevAttrMaxThreadsPerBlock);
  fill(properties.maxThreadsPerMultiProcessor, cudaDevAttrMaxThreadsPerMultiProcessor);
  fill(properties.maxBlocksPerMultiProcessor, cudaDevAttrMaxBlocksPerMultiprocessor);
  fill(properties.maxThreadsDim[0], cudaDevAttrMaxBlockDimX);
  fill(properties.maxThreadsDim[1], cudaDevAttrMaxBlockDimY);
  fill(properties.maxThreadsDim[2], cudaDevAttrMaxBlockDimZ);
  fill(properties.maxGridSize[0], cudaDevAttrMaxGridDimX);
  fill(properties.maxGridSize[1], cudaDevAttrMaxGridDimY);
  fill(properties.maxGridSize[2], cudaDevAttrMaxGridDimZ);
  fill(properties.sharedMemPerBlock, cudaDevAttrMaxSharedMemoryPerBlock);
  fill(properties.sharedMemPerBlockOptin, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  fill(properties.sharedMemPerMultiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  fill(properties.reservedSharedMemPerBlock, cudaDevAttrReservedSharedMemoryPerBlock);
  fill(properties.regsPerBlock, cudaDevAttrMaxRegistersPerBlock);
  fill(properties.regsPerMultiprocessor, cudaDevAttrMaxRegistersPerMultiprocessor);
  fill(properties.totalConstMem, cudaDevAttrTotalConstantMemory);
  fill(properties.l2CacheSize, cudaDevAttrL2CacheSize);
  fill(properties.persistingL2CacheMaxSize, cudaDevAttrMaxPersistingL2CacheSize);
  fill(properties.accessPolicyMaxWindowSize, cudaDevAttrMaxAccessPolicyWindowSize);
  fill(properties.memoryBusWidth, cudaDevAttrGlobalMemoryBusWidth);
  fill(properties.ECCEnabled, cudaDevAttrEccEnabled);
  fill(properties.textureAlignment, cudaDevAttrTextureAlignment);
  fill(properties.texturePitchAlignment, cudaDevAttrTexturePitchAlignment);
  fill(properties.surfaceAlignment, cudaDevAttrSurfaceAlignment);
  fill(properties.canMapHostMemory, cudaDevAttrCanMapHostMemory);
  fill(properties.canUseHostPointerForRegisteredMem, cudaDevAttrCanUseHostPointerForRegisteredMem);
  fill(properties.hostRegisterSupported, cudaDevAttrHostRegisterSupported);
  fill(properties.unifiedAddressing, cudaDevAttrUnifiedAddressing);
  fill(properties.concurrentKernels, cudaDevAttrConcurrentKernels);
  fill(properties.cooperativeLaunch, cudaDevAttrCooperativeLaunch);
  fill(properties.computePreemptionSupported, cudaDevAttrComputePreemptionSupported);
  fill(properties.asyncEngineCount, cudaDevAttrAsyncEngineCount);
  fill(properties.streamPrioritiesSupported, cudaDevAttrStreamPrioritiesSupported);
  fill(properties.globalL1CacheSupported, cudaDevAttrGlobalL1CacheSupported);
  fill(properties.localL1CacheSupported, cudaDevAttrLocalL1CacheSupported);
  fill(properties.pciBusID, cudaDevAttrPciBusId);
  fill(properties.pciDeviceID, cudaDevAttrPciDeviceId);
  fill(properties.pciDomainID, cudaDevAttrPciDomainId);
#if CUDART_VERSION < 13000  // later only attributes
  fill(properties.clockRate, cudaDevAttrClockRate);
  fill(properties.memoryClockRate, cudaDevAttrMemoryClockRate);
  fill(properties.computeMode, cudaDevAttrComputeMode);
#endif
  return properties;
}

}  // namespace simulate_gpus
