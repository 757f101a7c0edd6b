// SPDX-License-Identifier: MIT
//
// Many copies on one device, by few kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace use_gpu::detail {

/// Values, and for each a target of its shape.
struct Pairs {
  std::vector<at::Tensor> values = {}, targets = {};
  void add(const at::Tensor& value, const at::Tensor& target) {
    values.push_back(value);
    targets.push_back(target);
  }
};

/// Work that is prepared: it allocates nothing.
using Step = std::function<void()>;

/// Copies values[i] into targets[i], of the same device and shape, as often as it is called. Where
/// the two lie alike in memory, as integers, whatever their dtype: on a GPU 64 by one kernel
/// (LibTorch's _foreach_copy_). Others one by one, also where the dtypes differ. For values only:
/// callers switch autograd off.
[[nodiscard]] Step each_copy(at::TensorList values, at::TensorList targets);

}  // namespace use_gpu::detail
