// SPDX-License-Identifier: MIT
//
// Managed memory: the host and the kernels of all devices use it at the same address. It never moves, so what a program
// says of where it should be changes nothing.
#include <cuda_runtime_api.h>

#include "devices.hpp"
#include "errors.hpp"
#include "pinned_memory.hpp"

using namespace simulate_gpus;

namespace {

cudaError_t check_managed(const void* address, std::size_t bytes) {
  cudaPointerAttributes found{};
  if (bytes == 0) return cudaErrorInvalidValue;
  const auto around = pinned_around(address);
  if (!around || cudaPointerGetAttributes(&found, address) != cudaSuccess ||
      found.type != cudaMemoryTypeManaged)
    return cudaErrorInvalidValue;
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(address) -
                                               static_cast<const char*>(around->begin));
  return bytes <= around->bytes - offset ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t check_location(const cudaMemLocation& location) {
  if (location.type == cudaMemLocationTypeDevice)
    return exists(location.id) ? cudaSuccess : cudaErrorInvalidDevice;
  return location.type == cudaMemLocationTypeInvalid ? cudaErrorInvalidValue : cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMallocManaged(void** address, std::size_t bytes, unsigned flags) {
  SIMULATE_GPUS_ENTER();
  if (address == nullptr || bytes == 0 ||
      (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost))
    return fail(cudaErrorInvalidValue);
  make_context(current_device());
  *address = allocate_managed(bytes);
  return *address ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}

cudaError_t cudaMemPrefetchAsync(const void* address, std::size_t bytes, cudaMemLocation location,
                                 unsigned flags, cudaStream_t) {
  SIMULATE_GPUS_ENTER();
  if (flags != 0) return fail(cudaErrorInvalidValue);
  if (const cudaError_t wrong = check_location(location)) return fail(wrong);
  return fail(check_managed(address, bytes));
}

cudaError_t cudaMemAdvise(const void* address, std::size_t bytes, cudaMemoryAdvise advice,
                          cudaMemLocation) {
  SIMULATE_GPUS_ENTER();
  if (advice < cudaMemAdviseSetReadMostly || advice > cudaMemAdviseUnsetAccessedBy)
    return fail(cudaErrorInvalidValue);
  return fail(check_managed(address, bytes));
}

cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void* address, std::size_t, unsigned) {
  SIMULATE_GPUS_ENTER();
  return fail(check_managed(address, 1));
}
}
