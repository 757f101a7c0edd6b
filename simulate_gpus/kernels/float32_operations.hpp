// SPDX-License-Identifier: MIT
//
// Operations in 16 bits that are computed in float32, though the CPU has kernels for them: CUDA's kernel rounds its result alone, and
// the CPU's more, or it takes the CPU many times longer.
#pragma once

#include <ATen/core/function_schema.h>

#include <optional>

#include "kernels/arguments.hpp"

namespace simulate_gpus {

/// Whether some calls of the operation are computed so.
bool is_computed_in_float32(const c10::FunctionSchema& schema);

/// For such an operation: the 16-bit dtype of this call's operands. None where the call is computed as it is.
std::optional<at::ScalarType> dtype_to_widen(const c10::FunctionSchema& schema,
                                             const Values& arguments);

}  // namespace simulate_gpus
