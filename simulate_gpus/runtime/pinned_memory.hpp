// SPDX-License-Identifier: MIT
#pragma once

namespace simulated_cuda {

/// Whether the address lies in host memory that the program pinned (cudaHostAlloc,
/// cudaHostRegister): asynchronous copies need it.
bool is_pinned(const void* address);

}  // namespace simulated_cuda
