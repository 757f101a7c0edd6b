// SPDX-License-Identifier: MIT
#include "program_kernel.hpp"

#include <cuda_runtime_api.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>

#include "device_attributes.hpp"
#include "devices.hpp"
#include "gpu_profiles.hpp"
#include "kernel_library.hpp"
#include "settings.hpp"

namespace simulate_gpus {
namespace {

// What every block may have, static and dynamic; more after the program has asked for it.
constexpr int k_shared_bytes_of_all = 48 << 10;
// What the system keeps of each block's shared memory, and how it is rounded, since compute capability 8.0.
constexpr int k_reserved_shared_bytes = 1024, k_shared_granularity = 128;
constexpr int k_registers = 65536, k_register_granularity = 256, k_warp = 32;

int round_up(int value, int granularity) {
  return (value + granularity - 1) / granularity * granularity;
}

int most_shared_bytes() { return limits_of(settings().gpu).shared_kibibytes_of_block << 10; }

}  // namespace

const ptx::Attributes& ptx_attributes_of(CUfunc_st& kernel, int device) try {
  const std::scoped_lock lock(kernel.mutex);
  if (!kernel.attributes) kernel.attributes = kernel.module->on(device)->attributes(kernel.name);
  if (kernel.attributes->static_shared_bytes > k_shared_bytes_of_all)
    throw KernelError(cudaErrorInvalidPtx, "the kernel " + kernel.name.substr(0, 150) +
                                               " has more than 48 KiB of static shared memory");
  return *kernel.attributes;
} catch (const ptx::Error& error) {
  throw error_of(error);
}

std::string readable_kernel_name(const char* mangled) {
  const std::unique_ptr<char, decltype(&std::free)> readable(
      abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr), &std::free);
  std::string name = readable ? readable.get() : mangled;
  // Without the long template arguments.
  if (name.starts_with("void ")) name.erase(0, 5);
  return name.substr(0, std::min(name.find('<'), std::size_t{200}));
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

cudaFuncAttributes simulate_gpus::attributes_of(CUfunc_st& kernel, int device) {
  const ptx::Attributes& found = ptx_attributes_of(kernel, device);
  cudaFuncAttributes attributes{};
  attributes.sharedSizeBytes = found.static_shared_bytes;
  attributes.constSizeBytes = found.constant_bytes;
  attributes.localSizeBytes = found.local_bytes;
  attributes.maxThreadsPerBlock = static_cast<int>(std::min(found.max_threads, 1024U));
  attributes.numRegs = static_cast<int>(found.registers);
  attributes.ptxVersion = static_cast<int>(found.target);
  attributes.binaryVersion = settings().gpu.major * 10 + settings().gpu.minor;
  const int allowed = kernel.allowed_shared_bytes[static_cast<std::size_t>(device)];
  attributes.maxDynamicSharedSizeBytes =
      allowed > 0 ? allowed - 1
                  : k_shared_bytes_of_all - static_cast<int>(found.static_shared_bytes);
  attributes.preferredShmemCarveout = -1;
  return attributes;
}

ptx::Parameter simulate_gpus::parameter_of(CUfunc_st& kernel, std::size_t index) {
  const auto& parameters = ptx_attributes_of(kernel, current_device()).parameters;
  if (index >= parameters.size()) throw KernelError(cudaErrorInvalidValue);
  return parameters[index];
}

void simulate_gpus::set_kernel_attribute(CUfunc_st& kernel, int attribute, int value, int device) {
  switch (attribute) {
    case cudaFuncAttributeMaxDynamicSharedMemorySize: {
      const auto fixed = static_cast<int>(ptx_attributes_of(kernel, device).static_shared_bytes);
      if (value < 0 || value > most_shared_bytes() - fixed)
        throw KernelError(cudaErrorInvalidValue);
      kernel.allowed_shared_bytes[static_cast<std::size_t>(device)] = value + 1;
      return;
    }
    case cudaFuncAttributePreferredSharedMemoryCarveout:
      if (value < -1 || value > 100) throw KernelError(cudaErrorInvalidValue);
      return;
    case cudaFuncAttributeNonPortableClusterSizeAllowed:
      return;
    default:
      throw KernelError(cudaErrorInvalidValue);
  }
}

std::string simulate_gpus::refusal_of(const cudaLaunchAttribute& attribute) {
  switch (attribute.id) {
    case cudaLaunchAttributeClusterDimension: {
      const auto& [x, y, z] = attribute.val.clusterDim;
      return x > 1 || y > 1 || z > 1 ? "it is launched in clusters of blocks" : "";
    }
    case cudaLaunchAttributeIgnore:
    case cudaLaunchAttributeAccessPolicyWindow:
    case cudaLaunchAttributeCooperative:
    case cudaLaunchAttributeSynchronizationPolicy:
    case cudaLaunchAttributeClusterSchedulingPolicyPreference:
    case cudaLaunchAttributeProgrammaticStreamSerialization:
    case cudaLaunchAttributePriority:
    case cudaLaunchAttributeMemSyncDomainMap:
    case cudaLaunchAttributeMemSyncDomain:
    case cudaLaunchAttributePreferredSharedMemoryCarveout:
      return "";  // they change nothing but times
    default:
      return "its launch has the attribute " + std::to_string(attribute.id) +
             ", which simulated GPUs do not offer";
  }
}

// As the CUDA occupancy calculator computes it.
int simulate_gpus::occupancy_of(CUfunc_st& kernel, int threads, std::size_t shared_bytes,
                                int device) {
  if (threads <= 0) throw KernelError(cudaErrorInvalidValue);
  const cudaFuncAttributes attributes = attributes_of(kernel, device);
  const MultiprocessorLimits limits = limits_of(settings().gpu);
  if (threads > attributes.maxThreadsPerBlock ||
      shared_bytes > static_cast<std::size_t>(attributes.maxDynamicSharedSizeBytes))
    return 0;
  const int warps = round_up(threads, k_warp) / k_warp;
  int blocks = std::min(limits.blocks, limits.threads / k_warp / warps);
  if (attributes.numRegs > 0) {
    const int of_warp = round_up(attributes.numRegs * k_warp, k_register_granularity);
    blocks = std::min(blocks, k_registers / of_warp / warps);
  }
  const int reserved = settings().gpu.major >= 8 ? k_reserved_shared_bytes : 0;
  const auto used = static_cast<int>(attributes.sharedSizeBytes + shared_bytes) + reserved;
  if (used > 0)
    blocks =
        std::min(blocks, (limits.shared_kibibytes << 10) / round_up(used, k_shared_granularity));
  return blocks;
}
