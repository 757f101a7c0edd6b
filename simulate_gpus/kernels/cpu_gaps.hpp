// SPDX-License-Identifier: MIT
//
// What CUDA's kernels take and the CPU's refuse, for single operations.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

namespace simulate_gpus {

/// Changes the arguments (on the host) to what the CPU's kernel takes, with the same result. Throws
/// the errors that only CUDA's kernel has.
void adapt_to_cpu(const c10::FunctionSchema& schema, torch::jit::Stack& arguments);

/// Gives results of the CPU's kernel the strides and dtypes that CUDA's have for these arguments.
void adapt_to_gpu(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments,
                  torch::jit::Stack& results);

/// Which of CUDA's kernels the CPU's fused attention stands for, in this thread.
inline thread_local bool is_flash_attention = false;

/// Computes an operation whose CPU kernel lacks these arguments, and replaces them by the results.
/// False for any other operation.
bool compute_without_kernel(const c10::FunctionSchema& schema, torch::jit::Stack& arguments);

}  // namespace simulate_gpus
