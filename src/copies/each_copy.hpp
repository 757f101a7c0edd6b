// SPDX-License-Identifier: MIT
//
// Many copies on one device, by few kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

namespace use_gpu::detail {

/// Values, and for each a target of its shape.
struct Pairs {
  std::vector<at::Tensor> values = {}, targets = {};
  void add(const at::Tensor& value, const at::Tensor& target);
};

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
  struct Row {
    std::vector<at::Tensor> values;
    at::Tensor target;  // all their targets
  };
  std::vector<Row> rows_;
  std::map<at::ScalarType, Pairs> scattered_;
  Pairs on_host_;
  std::vector<at::Tensor> alike_;  // the targets of these three, as they were given
  Pairs one_by_one_;
};

}  // namespace use_gpu::detail
