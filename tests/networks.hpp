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

/// One to register tensors in.
struct Net : torch::nn::Module {};

/// A tensor of every kind, each with a name that says which.
inline void register_all_kinds(torch::nn::Module& net) {
  net.register_parameter("empty", torch::empty({0, 3}));
  net.register_parameter("scalar", torch::tensor(1.5F));
  net.register_parameter("transposed", torch::arange(6.).view({2, 3}).t());
  net.register_parameter("frozen", torch::ones({2}), /*requires_grad=*/false);
  net.register_parameter("conjugated",
                         torch::view_as_complex(torch::tensor({{1.F, 2.F}, {3.F, -4.F}})).conj());
  net.register_parameter("undefined", at::Tensor(), /*requires_grad=*/false);
  net.register_buffer("mask", torch::tensor({true, false, true}));
  net.register_buffer("every_second", torch::arange(10).slice(0, 0, 10, 2));
  for (const auto dtype :
       {torch::kByte, torch::kChar, torch::kShort, torch::kInt, torch::kLong, torch::kHalf,
        torch::kBFloat16, torch::kFloat, torch::kDouble, torch::kUInt16, torch::kUInt32,
        torch::kUInt64, torch::kFloat8_e5m2, torch::kFloat8_e4m3fn, torch::kFloat8_e8m0fnu,
        torch::kFloat8_e5m2fnuz, torch::kFloat8_e4m3fnuz, torch::kFloat4_e2m1fn_x2}) {
    const auto bytes = torch::arange(16, torch::kByte) * 7;
    net.register_buffer(std::string(c10::getDtypeNames(dtype).first),
                        bytes.view(dtype).view({2, -1}));
  }
}

/// Copies on the CPU, made without the functions under test.
inline std::map<std::string, at::Tensor> snapshot(const torch::nn::Module& net) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> values;
  for (const auto& x : net.named_parameters())
    values.emplace(x.key(), x.value().to(torch::kCPU, false, true));
  for (const auto& x : net.named_buffers())
    values.emplace(x.key(), x.value().to(torch::kCPU, false, true));
  return values;
}

/// Other values of the same kinds.
inline void fill_with_zeros(torch::nn::Module& net) {
  const at::NoGradGuard no_grad;
  auto all = net.parameters();
  for (const auto& x : net.buffers()) all.push_back(x);
  for (auto& x : all) {
    const auto bytes = torch::zeros({static_cast<std::int64_t>(x.nbytes())}, torch::kByte);
    x.copy_(bytes.view(x.scalar_type()).view(x.sizes()));
  }
}

}  // namespace use_gpu::test
