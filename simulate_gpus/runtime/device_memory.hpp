// SPDX-License-Identifier: MIT
//
// Device memory, made of host memory: what is allocated in each device's arena (arena.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace simulate_gpus {

/// The device whose memory it is; nullopt for the host's. Takes no lock.
std::optional<int> device_at(const void* address);

/// Null if the device has no room for it (or the machine no address space).
void* allocate(int device, std::size_t bytes);

/// False for what is not an allocation.
bool release(void* address);

/// Releases all that is allocated on the device.
void release_all(int device);

/// The allocation in which an address lies, and where in which file it is.
struct Allocation {
  const void* begin;
  std::size_t bytes;
  std::uint64_t id;
  int device, file;
  std::size_t offset;
};
std::optional<Allocation> allocation_at(const void* address);

/// Whether the bytes lie in one allocation, or in memory of the host.
bool is_allocated(const void* address, std::size_t bytes);

/// Bytes that a kernel may use.
struct Extent {
  const void* begin;
  std::size_t bytes;
};

/// The allocation in which the byte of a device lies.
std::optional<Extent> allocation_around(const void* address);

/// Counts memory that is elsewhere (virtual_memory.hpp). False if the device has no room for it.
bool take(int device, std::size_t bytes);
void give_back(int device, std::size_t bytes);

/// Fills new memory, at its host address, so that no code relies on zeros: its first bytes, as many as
/// LibTorch's usual block has. Not in a dry run.
void fill_fresh(void* host, std::size_t bytes);

std::uint64_t allocated_bytes(int device);
/// What can still be allocated, by this process or by others.
std::uint64_t free_bytes(int device);
std::uint64_t peak_allocated_bytes(int device);
std::uint64_t num_allocations();

}  // namespace simulate_gpus
