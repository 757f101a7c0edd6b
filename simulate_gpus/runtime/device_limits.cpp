// SPDX-License-Identifier: MIT
//
// What programs set for all kernels of a device. Kernels of the program are not computed here, so it is only kept.
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <iterator>

#include "devices.hpp"
#include "errors.hpp"
#include "settings.hpp"

using namespace simulate_gpus;

namespace {

// By number: stack, printf's buffer, heap, depth of synchronization, launches that wait, bytes of a fetch
// into L2, persisting L2. As on an H100; kernels that launch kernels cannot wait for them since CUDA 12.
constexpr std::size_t k_defaults[] = {1024, 8650752, 8388608, 0, 2048, 64, 9830400};
constexpr int k_num_limits = std::size(k_defaults);
// The driver's: shared memory of a block, and whether graphics share the GPU.
constexpr int k_shared_memory = 7, k_graphics = 8, k_graphics_fallback = 9;

struct OfDevice {
  std::array<std::atomic<std::size_t>, k_num_limits> limits;
  std::atomic<int> cache = cudaFuncCachePreferNone;
};

OfDevice& of_current_device() {
  static auto* const devices = [] {
    auto* const made = new std::array<OfDevice, k_most_gpus>;
    for (OfDevice& device : *made)
      for (std::size_t limit = 0; limit < device.limits.size(); ++limit)
        device.limits[limit] = k_defaults[limit];
    if (!settings().gpu.is_measured) {
      for (OfDevice& device : *made) device.limits[cudaLimitPersistingL2CacheSize] = 0;
    }
    return made;
  }();
  return (*devices)[static_cast<std::size_t>(current_device())];
}

cudaError_t check_limit(int limit) {
  if (limit < 0 || limit > k_graphics_fallback) return cudaErrorInvalidValue;
  return limit == cudaLimitDevRuntimeSyncDepth || limit == k_graphics_fallback
             ? cudaErrorUnsupportedLimit
             : cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, value);
  if (const cudaError_t wrong = check_limit(limit)) return fail(wrong);
  make_context(current_device());
  const int number = limit;  // the runtime does not name the driver's
  if (number == k_graphics) {
    *value = 0;
  } else if (number == k_shared_memory) {
    *value = static_cast<std::size_t>(limits_of(settings().gpu).shared_kibibytes_of_block) << 10;
  } else {
    *value = of_current_device().limits[static_cast<std::size_t>(limit)];
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceSetLimit(cudaLimit limit, std::size_t value) {
  SIMULATE_GPUS_ENTER();
  if (const cudaError_t wrong = check_limit(limit)) return fail(wrong);
  if (static_cast<int>(limit) >= k_num_limits) return fail(cudaErrorUnsupportedLimit);
  make_context(current_device());
  of_current_device().limits[static_cast<std::size_t>(limit)] = value;
  return cudaSuccess;
}

cudaError_t cudaCtxResetPersistingL2Cache() {
  SIMULATE_GPUS_ENTER();
  return cudaSuccess;
}

cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache config) {
  SIMULATE_GPUS_ENTER();
  if (config < cudaFuncCachePreferNone || config > cudaFuncCachePreferEqual)
    return fail(cudaErrorInvalidValue);
  of_current_device().cache = config;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, config);
  *config = static_cast<cudaFuncCache>(of_current_device().cache.load());
  return cudaSuccess;
}
}
