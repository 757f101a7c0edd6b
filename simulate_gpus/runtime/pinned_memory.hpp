// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "device_memory.hpp"

namespace simulate_gpus {

/// Whether the address lies in host memory that the program pinned (cudaHostAlloc,
/// cudaHostRegister): asynchronous copies need it.
bool is_pinned(const void* address);

/// The memory around the address that was pinned by one call.
std::optional<Extent> pinned_around(const void* address);

/// Managed memory: the host and all GPUs use it at the same address. Null if there is none; false for what is no
/// beginning of it.
void* allocate_managed(std::size_t bytes);
bool release_managed(void* address);

/// How often memory was allocated so.
std::uint64_t num_pinned_allocations();

/// Where the runtime finds a byte of the host's memory.
void* runtimes_address(const void* address);

}  // namespace simulate_gpus
