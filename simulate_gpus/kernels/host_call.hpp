// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace simulate_gpus {

/// Calls the CPU's kernel, and closes the gaps to CUDA's: where it lacks a dtype, it computes in a
/// wider one (float16 in float32), and rounds what it returns and writes. It does so for the few
/// operations that are known; for any other `in_wider_dtype`, after a first call that failed.
void call_on_host(const c10::OperatorHandle& operation, c10::DispatchKey key, bool in_wider_dtype,
                  torch::jit::Stack* stack);

}  // namespace simulate_gpus
