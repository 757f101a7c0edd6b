// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace simulate_gpus {

/// Whether the address lies in host memory that the program pinned (cudaHostAlloc,
/// cudaHostRegister): asynchronous copies need it.
bool is_pinned(const void* address);

/// How often memory was allocated so.
std::uint64_t num_pinned_allocations();

/// Where the runtime finds a byte of the host's memory.
void* runtimes_address(const void* address);

}  // namespace simulate_gpus
