// SPDX-License-Identifier: MIT
#include "norm_log_cuda.hpp"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/types.h>
#include <use_gpu/device.hpp>

std::function<std::vector<at::Tensor>()> norm_log_graph(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_cuda()) return nullptr;
  const auto product = torch::empty_like(a[0]);
  const auto norms = torch::empty({a.size(0)}, a.options());
  const auto loop = [&] {
    for (std::int64_t i = 0; i < a.size(0); ++i) {
      auto out = product;
      auto norm = norms[i];
      torch::mm_out(out, a[i], b[i]);
      at::linalg_vector_norm_out(norm, out);
    }
  };
  use_gpu::synchronize(a.device());  // the side stream below uses memory of the current one
  const auto graph = std::make_shared<at::cuda::CUDAGraph>();
  {
    const c10::cuda::CUDAStreamGuard side(c10::cuda::getStreamFromPool(false, a.device().index()));
    loop();  // cuBLAS allocates its workspace, which is invalid in a capture
    c10::cuda::getCurrentCUDAStream().synchronize();
    graph->capture_begin();
    loop();
    graph->capture_end();
    c10::cuda::getCurrentCUDAStream().synchronize();
  }
  // a, b and product are what the graph reads and writes: they live as long as it does.
  return [graph, a, b, product, norms] {
    graph->replay();
    return std::vector{norms.cpu()};
  };
}
