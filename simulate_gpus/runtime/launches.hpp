// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace simulate_gpus {

/// The name of a CUDA kernel, without its template's arguments.
std::string kernel_name(const void* function);

}  // namespace simulate_gpus
