// SPDX-License-Identifier: MIT
#include "pinned_memory.hpp"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>

#include "device_memory.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "streams.hpp"
#include "tool.hpp"

namespace simulate_gpus {
namespace {

struct Pinned {
  std::mutex mutex;
  std::map<const char*, std::size_t> ranges;
  std::uint64_t allocations = 0;
};

Pinned& pinned() {
  static auto* const pinned = new Pinned;  // never destroyed: used until the very end of a process
  return *pinned;
}

void add(const void* address, std::size_t bytes) {
  const std::scoped_lock lock(pinned().mutex);
  pinned().ranges[static_cast<const char*>(address)] = bytes;
}

// Its size; 0 if it is none.
std::size_t remove(const void* address) {
  const std::scoped_lock lock(pinned().mutex);
  const auto range = pinned().ranges.extract(static_cast<const char*>(address));
  return range ? range.mapped() : 0;
}

}  // namespace

bool is_pinned(const void* address) {
  const auto* const byte = static_cast<const char*>(address);
  const std::scoped_lock lock(pinned().mutex);
  const auto after = pinned().ranges.upper_bound(byte);
  if (after == pinned().ranges.begin()) return false;
  const auto& [start, bytes] = *std::prev(after);
  return byte < start + bytes;
}

std::uint64_t num_pinned_allocations() {
  const std::scoped_lock lock(pinned().mutex);
  return pinned().allocations;
}

void* runtimes_address(const void* address) {
  void* const own = ask(&Tool::runtimes_address, address);
  return own ? own : const_cast<void*>(address);
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

extern "C" {

cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned) {
  SIMULATE_GPUS_ENTER();
  make_context(current_device());
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  constexpr std::size_t k_page = 4096;
  *address = ask(&Tool::allocate_pinned, bytes);
  if (*address == nullptr)
    *address = std::aligned_alloc(k_page, (bytes + k_page - 1) / k_page * k_page);
  if (*address == nullptr) return fail(cudaErrorMemoryAllocation);
  add(*address, bytes);
  const std::scoped_lock lock(pinned().mutex);
  ++pinned().allocations;
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  return cudaHostAlloc(address, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* address) {
  SIMULATE_GPUS_ENTER();
  if (address == nullptr) return cudaSuccess;
  finish_all();
  const std::size_t bytes = remove(address);
  if (bytes == 0) return fail(cudaErrorInvalidValue);
  tell(&Tool::frees, address, bytes);
  if (!ask(&Tool::free_pinned, address)) std::free(address);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* address, std::size_t bytes, unsigned) {
  SIMULATE_GPUS_ENTER();
  make_context(current_device());
  if (is_pinned(address)) return fail(cudaErrorHostMemoryAlreadyRegistered);
  add(address, bytes);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* address) {
  SIMULATE_GPUS_ENTER();
  finish_all();
  return remove(address) > 0 ? cudaSuccess : fail(cudaErrorHostMemoryNotRegistered);
}

// The address is the host's, as everywhere with unified addresses.
cudaError_t cudaHostGetDevicePointer(void** on_device, void* address, unsigned flags) {
  SIMULATE_GPUS_ENTER();
  if (flags != 0 || !is_pinned(address)) return fail(cudaErrorInvalidValue);
  *on_device = address;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  SIMULATE_GPUS_ENTER();
  auto* const pointer = const_cast<void*>(address);
  *attributes = {};
  if (const auto on_device = device_at(address)) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = *on_device;
    attributes->devicePointer = pointer;
  } else if (is_pinned(address)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->device = current_device();
    attributes->devicePointer = pointer;
    attributes->hostPointer = pointer;
  } else {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = cudaInvalidDeviceId;
    attributes->hostPointer = pointer;
  }
  return cudaSuccess;
}
}
