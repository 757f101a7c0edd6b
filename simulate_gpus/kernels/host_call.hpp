// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace simulate_gpus {

/// Calls the CPU's kernel, and closes the gaps to CUDA's: where it lacks a dtype, it computes in a
/// wider one (float16 in float32), and rounds what it returns and writes.
void call_on_host(const c10::OperatorHandle& operation, c10::DispatchKey key,
                  torch::jit::Stack* stack);

}  // namespace simulate_gpus
