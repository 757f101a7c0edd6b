// SPDX-License-Identifier: MIT
//
// What CUDA's kernels take and the CPU's refuse, and what they give otherwise, for single operations.
#pragma once

#include <optional>
#include <string_view>

#include "kernels/arguments.hpp"

namespace simulate_gpus {

struct Operation;

/// What is done on the host, beside the CPU's kernel of an operation or in its place. Functions may be null.
struct CpuGap {
  std::string_view name;  // without "aten::"; "*" stands for any end

  /// The results, where the CPU's kernel lacks these arguments; else none.
  std::optional<Values> (*compute)(const Operation& operation, const Values& arguments) = nullptr;

  /// Changes the arguments to what the CPU's kernel takes, with the same result. Throws the errors that
  /// only CUDA's kernel has.
  void (*adapt_arguments)(Values& arguments) = nullptr;

  /// Gives results of the CPU's kernel the strides and dtypes that CUDA's have for these arguments, as they
  /// were given.
  void (*adapt_results)(const Operation& operation, const Values& arguments,
                        Values& results) = nullptr;

  bool is_of_sparse = false;  // dense tensors have no such gap
};

/// Null for an operation that has none.
const CpuGap* find_gap(const c10::FunctionSchema& schema);

/// Which of CUDA's kernels the CPU's fused attention stands for, in this thread.
inline thread_local bool is_flash_attention = false;

}  // namespace simulate_gpus
