// SPDX-License-Identifier: MIT
//
// The attributes of a device, which the runtime and the driver know by the same numbers.
#include "device_attributes.hpp"

#include <cuda_runtime_api.h>

#include <iterator>
#include <string_view>

#include "settings.hpp"

namespace simulate_gpus {
namespace {

// By number, as an H100 answered (driver 580.159.04, CUDA 13.0), what all cards of today have in common. 0 stands
// for what differs, which is below, and for what simulated GPUs refuse: managed memory, memory pools, fabric handles,
// multicast, RDMA, DMA buffers, external semaphores, memory operations of streams and arrays that are sparse or mapped
// later.
// clang-format off
constexpr int k_common[] = {
    /*   0 */ 0, 1024, 1024, 1024, 64, 2147483647, 65535, 65535, 49152, 65536,
    /*  10 */ 32, 2147483647, 65536, 0, 512, 1, 0, 0, 0, 1,
    /*  20 */ 0, 131072, 131072, 65536, 16384, 16384, 16384, 32768, 32768, 2048,
    /*  30 */ 512, 1, 0, 0, 0, 0, 0, 0, 0, 0,
    /*  40 */ 3, 1, 32768, 2048, 1, 32768, 32768, 8192, 8192, 32768,
    /*  50 */ 0, 32, 32768, 32768, 2046, 32768, 131072, 65536, 16384, 16384,
    /*  60 */ 16384, 32768, 2048, 32768, 32768, 2048, 32768, 32768, 2046, 268435456,
    /*  70 */ 131072, 65000, 2097120, 32768, 32768, 0, 0, 32768, 1, 1,
    /*  80 */ 1, 0, 65536, 0, 0, 0, 0, 0, 0, 0,
    /*  90 */ 1, 1, 0, 0, 0, 1, 1, 0, 0, 1,
    /* 100 */ 0, 0, 1, 1, 0, 0, 0, 1, 0, 0,
    /* 110 */ 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,
    /* 120 */ 0, 0, 0, 0, 0, 1, 0, 0, 0, 1,
    /* 130 */ 0, -1, 0, 0, 0, 0, 0, 0, 0, 0,
    /* 140 */ 0, 1, 0, 0, 0, 0, 0, 0,
};
// clang-format on

// Known of the measured card alone; 0, "none", of others.
int if_measured(int value) { return settings().gpu.is_measured ? value : 0; }

// The table "Arithmetic instructions" of the CUDA programming guide: results of float32 for one of float64.
int float32_for_float64(int capability) {
  switch (capability) {
    case 75:
      return 32;
    case 86:
    case 89:
    case 120:
      return 64;
    default:  // 7.0, 8.0, 9.0, 10.0
      return 2;
  }
}

bool is_geforce() {
  return std::string_view(settings().gpu.name).find("GeForce") != std::string_view::npos;
}

}  // namespace

std::optional<int> attribute_of(int card, int number) {
  const GpuProfile& gpu = settings().gpu;
  const MultiprocessorLimits limits = limits_of(gpu);
  switch (number) {
    case cudaDevAttrClockRate:
      return gpu.megahertz * 1000;
    case cudaDevAttrMemoryClockRate:
      return gpu.memory_megahertz * 1000;
    case cudaDevAttrGlobalMemoryBusWidth:
      return gpu.memory_bits;
    case cudaDevAttrMultiProcessorCount:
      return gpu.multiprocessors;
    case cudaDevAttrComputeCapabilityMajor:
      return gpu.major;
    case cudaDevAttrComputeCapabilityMinor:
      return gpu.minor;
    case cudaDevAttrL2CacheSize:
      return gpu.l2_mebibytes << 20;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return limits.threads;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return limits.blocks;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return limits.shared_kibibytes << 10;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return limits.shared_kibibytes_of_block << 10;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return (limits.shared_kibibytes - limits.shared_kibibytes_of_block) << 10;
    case cudaDevAttrSingleToDoublePrecisionPerfRatio:
      return float32_for_float64(gpu.major * 10 + gpu.minor);
    case cudaDevAttrClusterLaunch:
      return gpu.major >= 9;
    case cudaDevAttrEccEnabled:
      return !is_geforce();
    case cudaDevAttrPciBusId:
      return card + 1;
    case cudaDevAttrMaxPersistingL2CacheSize:
      return if_measured(32768000);
    case cudaDevAttrMaxAccessPolicyWindowSize:
      return if_measured(134217728);
    case 126:  // cudaDevAttrMemSyncDomainCount, which older headers lack, as they do those below
      return gpu.major >= 9 ? 4 : 1;
    case 139:  // cudaDevAttrGpuPciDeviceId
      return if_measured(0x233010DE);
    case 140:  // cudaDevAttrGpuPciSubsystemId
      return if_measured(0x16C110DE);
    default:
      if (number < 1 || number >= static_cast<int>(std::size(k_common))) return std::nullopt;
      return k_common[number];
  }
}

}  // namespace simulate_gpus
