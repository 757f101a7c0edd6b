// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace simulated_cuda {

/// The name of a CUDA kernel, without its template's arguments.
std::string kernel_name(const void* function);

}  // namespace simulated_cuda
