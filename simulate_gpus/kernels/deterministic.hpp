// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/function_schema.h>

#include "kernels/arguments.hpp"

namespace simulate_gpus {

/// LibTorch's error, or warning, where a program asked for deterministic algorithms and its CUDA
/// kernel of this operation has none. The CPU's kernels, which compute here, have one.
void check_deterministic(const c10::FunctionSchema& schema, const Values& arguments);

}  // namespace simulate_gpus
