// SPDX-License-Identifier: MIT
//
// Calls of the CPU's kernel in a wider dtype (float16 in float32), with one rounding at the end: where the CPU lacks a dtype that CUDA
// has, or where float32_operations.hpp wants it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>

#include <set>
#include <string_view>
#include <vector>

#include "kernels/arguments.hpp"

namespace simulate_gpus {

struct WiderDtype {
  at::ScalarType narrow, wide;
  const std::set<std::string_view>* operations;  // null: where no operation is known
  bool is_view = false;
};

/// From and to the dtypes that a call's tensors have.
class Widening {
 public:
  /// Of the operations that are known to need it; or of any, whose results' dtypes are known.
  Widening(const c10::FunctionSchema& schema, const Values& arguments, bool is_any);

  /// Of tensors of the narrow dtype alone.
  Widening(at::ScalarType narrow, at::ScalarType wide) : used_{{narrow, wide, nullptr}} {}

  [[nodiscard]] bool is_possible() const { return !used_.empty() && is_certain_; }

  [[nodiscard]] at::Tensor widened(const at::Tensor& x) const;
  /// Of an argument, which says what dtype the results are to have.
  [[nodiscard]] c10::IValue widened_dtype(const c10::IValue& dtype) const;
  [[nodiscard]] at::Tensor narrowed(const at::Tensor& x) const;

 private:
  std::vector<WiderDtype> used_;
  bool is_certain_ = true;
};

/// Whether CUDA keeps the results after the first in float32.
bool has_statistics(std::string_view name);

}  // namespace simulate_gpus
