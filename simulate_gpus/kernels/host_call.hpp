// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/operation.hpp"

namespace simulate_gpus {

/// Of the tensors in the results, in their order.
using Dtypes = std::vector<at::ScalarType>;

/// Calls the CPU's kernel, and closes the gaps to CUDA's: where it lacks a dtype, it computes in a
/// wider one (float16 in float32), and rounds what it returns and writes. It does so for the few
/// operations that are known; for any other after a first call that failed, if `wanted` says which dtypes the results
/// have on a GPU.
Values call_on_host(const Operation& operation, const Values& arguments, const Dtypes& wanted = {});

}  // namespace simulate_gpus
