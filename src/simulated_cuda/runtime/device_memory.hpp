// SPDX-License-Identifier: MIT
//
// Device memory, made of host memory. Each device has one arena, which is mapped twice: at the
// address that programs see nobody may read or write, so a host that touches device memory faults;
// at the other, which only the runtime and its kernels know, everybody may. The arena is never
// unmapped, so that no address is ever somebody else's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace use_gpu::simulated_cuda {

struct DevicePointer {
  int device;
  std::size_t offset;  ///< in the device's arena
};

/// Nothing for memory of the host. Without a lock.
std::optional<DevicePointer> device_pointer(const void* address);

/// Null if the device has no room for it (or the machine no address space).
void* allocate(int device, std::size_t bytes);

/// False for what is not an allocation.
bool release(void* address);

/// Whether the bytes lie in one allocation, or in memory of the host.
bool is_allocated(const void* address, std::size_t bytes);

std::uint64_t allocated_bytes(int device);
std::uint64_t peak_allocated_bytes(int device);
std::uint64_t num_allocations();

}  // namespace use_gpu::simulated_cuda
