// SPDX-License-Identifier: MIT
//
// One operation of a simulated GPU: a CUDA kernel of aten, done by the CPU's on the same memory.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKey.h>

namespace simulate_gpus {

/// Computes the operation with the kernel that `host_key` has for it. Throws LibTorch's errors.
/// During a capture it is computed for its shapes and errors, and again at each replay.
void compute(const c10::OperatorHandle& operation, c10::DispatchKey host_key,
             torch::jit::Stack* stack);

/// The same for an operation of the CPU, without an overload, by its name. Returns the results.
torch::jit::Stack compute(const char* name, torch::jit::Stack arguments);

}  // namespace simulate_gpus
