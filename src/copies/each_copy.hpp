// SPDX-License-Identifier: MIT
//
// Many copies on one device, by few kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <vector>

namespace use_gpu::detail {

/// Copies of values[i] into targets[i], of the same device and shape. Where the two lie alike in
/// memory, as integers, whatever their dtype: on a GPU 128 by one kernel if the targets
/// follow each other in one storage, else 64 (LibTorch's cat and _foreach_copy_). Others one by one,
/// also where the dtypes differ.
/// Allocates only when it is made. For values only: callers switch autograd off.
class EachCopy {
 public:
  EachCopy() = default;
  EachCopy(at::TensorList values, at::TensorList targets);
  void run() const;

 private:
  struct Pairs {
    std::vector<at::Tensor> values, targets;
  };
  struct Row {
    std::vector<at::Tensor> values;
    at::Tensor target;  // all their targets
  };
  std::vector<Row> rows_;
  std::vector<Pairs> alike_;           // of one width
  std::vector<at::Tensor> own_alike_;  // the targets of both, as they were given
  Pairs one_by_one_;
};

/// Runs a write that must not stop half-way: some tensors would keep old values. If it fails,
/// LibTorch's cached memory is released (the first launch of a kernel needs device memory) and the
/// whole write is repeated. A second error is passed on: the device and its values are lost.
void write_with_retry(c10::function_ref<void()> write);

}  // namespace use_gpu::detail
