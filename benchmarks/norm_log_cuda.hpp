// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#ifdef USE_GPU_WITH_CUDA
/// The loop of products and norms, recorded once as a CUDA graph and replayed, so that the host
/// launches one graph, not thousands of kernels. Null if a is not on CUDA.
[[nodiscard]] std::function<std::vector<at::Tensor>()> norm_log_graph(const at::Tensor& a,
                                                                      const at::Tensor& b);
#else
[[nodiscard]] inline std::function<std::vector<at::Tensor>()> norm_log_graph(const at::Tensor&,
                                                                             const at::Tensor&) {
  return nullptr;
}
#endif
