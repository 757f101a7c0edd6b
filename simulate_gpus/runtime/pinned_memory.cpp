// SPDX-License-Identifier: MIT
#include "pinned_memory.hpp"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "capture_modes.hpp"
#include "device_memory.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "streams.hpp"
#include "tool.hpp"

namespace simulate_gpus {
namespace {

struct PinnedRange {
  std::size_t bytes = 0;
  unsigned flags = 0;
  bool is_registered = false;  // by cudaHostRegister
  bool is_managed = false;
};

constexpr std::size_t k_pinned_page = 4096;

void* allocate_pages(std::size_t bytes) {
  if (bytes > SIZE_MAX - k_pinned_page) return nullptr;
  return std::aligned_alloc(k_pinned_page,
                            (bytes + k_pinned_page - 1) / k_pinned_page * k_pinned_page);
}

struct Pinned {
  std::mutex mutex;
  std::map<const char*, PinnedRange> ranges;
  std::uint64_t allocations = 0;
};

Pinned& pinned() {
  static auto* const pinned = new Pinned;  // never destroyed: used until the very end of a process
  return *pinned;
}

void add(const void* address, const PinnedRange& range) {
  const std::scoped_lock lock(pinned().mutex);
  pinned().ranges[static_cast<const char*>(address)] = range;
}

// Its size if it begins there, and was pinned in this way; else 0.
std::size_t remove(const void* address, bool is_registered, bool is_managed = false) {
  const std::scoped_lock lock(pinned().mutex);
  const auto found = pinned().ranges.find(static_cast<const char*>(address));
  if (found == pinned().ranges.end() || found->second.is_registered != is_registered ||
      found->second.is_managed != is_managed)
    return 0;
  return pinned().ranges.extract(found).mapped().bytes;
}

using PlacedRange = std::pair<const char* const, PinnedRange>;

std::optional<PlacedRange> placed_range(const void* address) {
  const auto* const byte = static_cast<const char*>(address);
  const std::scoped_lock lock(pinned().mutex);
  const auto after = pinned().ranges.upper_bound(byte);
  if (after == pinned().ranges.begin()) return std::nullopt;
  const PlacedRange& found = *std::prev(after);
  return byte < found.first + found.second.bytes ? std::optional(found) : std::nullopt;
}

std::optional<PinnedRange> pinned_range(const void* address) {
  const auto found = placed_range(address);
  return found ? std::optional(found->second) : std::nullopt;
}

}  // namespace

bool is_pinned(const void* address) { return pinned_range(address).has_value(); }

std::optional<Extent> pinned_around(const void* address) {
  const auto found = placed_range(address);
  return found ? std::optional(Extent{found->first, found->second.bytes}) : std::nullopt;
}

void* allocate_managed(std::size_t bytes) {
  void* const address = allocate_pages(bytes);
  if (address != nullptr) add(address, {.bytes = bytes, .is_managed = true});
  return address;
}

bool release_managed(void* address) {
  const std::size_t bytes = remove(address, /*is_registered=*/false, /*is_managed=*/true);
  if (bytes == 0) return false;
  tell(&Tool::frees, address, bytes);
  std::free(address);
  return true;
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

cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned flags) {
  SIMULATE_GPUS_ENTER();
  constexpr unsigned k_flags =
      cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
  if (address == nullptr || (flags & ~k_flags) != 0) return fail(cudaErrorInvalidValue);
  if (const cudaError_t refused = refuse_unsafe()) return refused;
  make_context(current_device());
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  *address = ask(&Tool::allocate_pinned, bytes);
  if (*address == nullptr) *address = allocate_pages(bytes);
  if (*address == nullptr) return fail(cudaErrorMemoryAllocation);
  add(*address, {.bytes = bytes, .flags = flags});
  const std::scoped_lock lock(pinned().mutex);
  ++pinned().allocations;
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  SIMULATE_GPUS_PASS_ON();
  return cudaHostAlloc(address, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* address) {
  SIMULATE_GPUS_ENTER();
  if (address == nullptr) return cudaSuccess;
  finish_all();
  const std::size_t bytes = remove(address, /*is_registered=*/false);
  if (bytes == 0) return fail(cudaErrorInvalidValue);
  tell(&Tool::frees, address, bytes);
  if (!ask(&Tool::free_pinned, address)) std::free(address);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* address, std::size_t bytes, unsigned flags) {
  SIMULATE_GPUS_ENTER();
  constexpr unsigned k_flags = cudaHostRegisterPortable | cudaHostRegisterMapped |
                               cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
  const auto known = pinned_range(address);
  const bool is_cudas = device_at(address) || (known && !known->is_registered);
  if (address == nullptr || bytes == 0 || (flags & ~k_flags) != 0 || is_cudas)
    return fail(cudaErrorInvalidValue);
  make_context(current_device());
  if (known) return fail(cudaErrorHostMemoryAlreadyRegistered);
  add(address, {.bytes = bytes, .flags = flags, .is_registered = true});
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* address) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, address);
  finish_all();
  if (remove(address, /*is_registered=*/true) > 0) return cudaSuccess;
  return fail(is_pinned(address) ? cudaErrorInvalidValue : cudaErrorHostMemoryNotRegistered);
}

// The address is the host's, as everywhere with unified addresses.
cudaError_t cudaHostGetDevicePointer(void** on_device, void* address, unsigned flags) {
  SIMULATE_GPUS_ENTER();
  if (on_device == nullptr || flags != 0 || !is_pinned(address)) return fail(cudaErrorInvalidValue);
  *on_device = address;
  return cudaSuccess;
}

// All of it is mapped, with unified addresses.
cudaError_t cudaHostGetFlags(unsigned* flags, void* address) {
  SIMULATE_GPUS_ENTER();
  const auto range = pinned_range(address);
  if (flags == nullptr || !range) return fail(cudaErrorInvalidValue);
  *flags = range->flags | cudaHostAllocMapped;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, attributes);
  auto* const pointer = const_cast<void*>(address);
  *attributes = {};
  if (const auto on_device = device_at(address); on_device && is_allocated(address, 1)) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = *on_device;
    attributes->devicePointer = pointer;
  } else if (const auto range = pinned_range(address)) {
    attributes->type = range->is_managed ? cudaMemoryTypeManaged : cudaMemoryTypeHost;
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
