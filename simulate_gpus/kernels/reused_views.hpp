// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace simulate_gpus {

/// Views of strided CUDA tensors (host_view), for the arguments of one call: the thread keeps those of its last calls in
/// their order, and uses them again, unless somebody else still has them. Making one costs more than most operations
/// of few values.
class ReusedViews {
 public:
  ReusedViews();
  at::Tensor next(const at::Tensor& tensor);

 private:
  std::vector<at::Tensor>* kept_ = nullptr;  // when the thread ends
  std::size_t place_ = 0;
};

}  // namespace simulate_gpus
