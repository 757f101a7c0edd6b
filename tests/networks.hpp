// SPDX-License-Identifier: MIT
//
// The network that most tests move, and when two tensors are the same.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

namespace use_gpu::test {

/// Parameters and buffers, six and three, and modules whose mode matters.
inline torch::nn::Sequential small_net() {
  return torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4),
                               torch::nn::Linear(4, 1));
}

/// Whether dtype, shape and each bit are equal, wherever both are.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& x) {
    return x.detach().cpu().resolve_conj().contiguous().flatten().view(torch::kByte);
  };
  return a.dtype() == b.dtype() && a.sizes() == b.sizes() && bytes(a).equal(bytes(b));
}

}  // namespace use_gpu::test
