// SPDX-License-Identifier: MIT
//
// The network that most tests move, and when two tensors are the same.
#pragma once

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <map>
#include <string>

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

/// Checks that both have the same names with the same tensors.
inline void expect_same(const std::map<std::string, at::Tensor>& expected,
                        const std::map<std::string, at::Tensor>& found) {
  ASSERT_EQ(expected.size(), found.size());
  for (const auto& [name, x] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_TRUE(same_bits(x, found.at(name))) << name;
  }
}

}  // namespace use_gpu::test
