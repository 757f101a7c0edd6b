// SPDX-License-Identifier: MIT
//
// Fused attention, compared with the same in single steps and float64, with the very mask that dropout
// has used.
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <gtest/gtest.h>
#include <torch/nested.h>
#include <torch/nn/functional.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "support.hpp"

namespace {

using torch::Tensor;
using OptionalTensor = std::optional<Tensor>;

struct Case {
  torch::Dtype dtype;
  std::int64_t queries, keys, width, width_of_values;
  double dropout;
  bool is_causal;
  std::optional<double> scale;
  std::vector<std::int64_t> sizes_of_mask;  // none: no mask
};

constexpr std::int64_t k_batch = 2, k_heads = 4;
constexpr std::int64_t k_seed = 42;

Tensor random(torch::IntArrayRef sizes, torch::Dtype dtype) {
  return torch::randn(sizes, torch::TensorOptions(k_gpu).dtype(dtype)).requires_grad_();
}

// Only this kind of attention may be chosen.
struct Only {
  explicit Only(sdp::SDPBackend kind) {
    at::globalContext().setSDPUseFlash(kind == sdp::SDPBackend::flash_attention);
    at::globalContext().setSDPUseMemEfficient(kind == sdp::SDPBackend::efficient_attention);
    at::globalContext().setSDPUseMath(kind == sdp::SDPBackend::math);
    at::globalContext().setSDPUseCuDNN(kind == sdp::SDPBackend::cudnn_attention);
  }
  ~Only() {
    at::globalContext().setSDPUseFlash(true);
    at::globalContext().setSDPUseMemEfficient(true);
    at::globalContext().setSDPUseMath(true);
    at::globalContext().setSDPUseCuDNN(was_cudnn_used);
  }
  bool was_cudnn_used = at::globalContext().userEnabledCuDNNSDP();
};

// Which pairs efficient attention's dropout keeps, by seed and offset.
Tensor kept_by_efficient(const Tensor& like, double dropout, std::int64_t seed,
                         std::int64_t offset) {
  Tensor numbers = torch::empty(like.sizes(), torch::TensorOptions(k_gpu).dtype(torch::kFloat));
  return at::_fill_mem_eff_dropout_mask_(numbers, dropout, seed, offset) > dropout;
}

Tensor in_steps(const Tensor& query, const Tensor& key, const Tensor& value, const Case& x,
                const OptionalTensor& mask, const OptionalTensor& kept) {
  const auto repeats = query.size(1) / key.size(1);
  const Tensor keys = key.to(torch::kDouble).repeat_interleave(repeats, 1),
               values = value.to(torch::kDouble).repeat_interleave(repeats, 1);
  Tensor scores = query.to(torch::kDouble).matmul(keys.transpose(-2, -1)) *
                  x.scale.value_or(1 / std::sqrt(static_cast<double>(x.width)));
  if (mask) scores = scores + mask->to(torch::kDouble);
  if (x.is_causal) {
    scores = scores.masked_fill(torch::ones_like(scores, torch::kBool).tril().logical_not(),
                                -std::numeric_limits<double>::infinity());
  }
  Tensor weights = scores.softmax(-1);
  if (kept) weights = weights * *kept / (1 - x.dropout);
  return weights.matmul(values);
}

double tolerance_of(torch::Dtype dtype) {
  return dtype == torch::kFloat ? 1e-5 : dtype == torch::kHalf ? 5e-3 : 4e-2;
}

void expect_same_gradients(const Tensor& output, const Tensor& expected,
                           const std::vector<Tensor>& inputs) {
  const double most = tolerance_of(output.scalar_type());
  EXPECT_TRUE(output.to(torch::kDouble).allclose(expected, most, most));
  const Tensor grad = torch::randn_like(output);
  const auto gradients = torch::autograd::grad({output}, inputs, {grad}),
             of_expected = torch::autograd::grad({expected}, inputs, {grad.to(torch::kDouble)});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor x = gradients[i].to(torch::kDouble), y = of_expected[i].to(torch::kDouble);
    EXPECT_EQ(gradients[i].sizes(), inputs[i].sizes());
    EXPECT_TRUE(x.allclose(y, 4 * most, 4 * most)) << i << ": " << (x - y).abs().max();
  }
}

TEST(Attention, OfTheEfficientKindIsThatInSteps) {
  const Only only(sdp::SDPBackend::efficient_attention);
  for (const Case& x :
       std::vector<Case>{{torch::kFloat, 5, 7, 8, 8, 0, false, {}, {}},
                         {torch::kFloat, 5, 7, 8, 24, 0, true, {}, {}},
                         {torch::kFloat, 33, 40, 16, 8, 0.3, true, 0.2, {}},
                         {torch::kFloat, 33, 40, 16, 16, 0, false, {}, {33, 40}},
                         {torch::kFloat, 33, 45, 16, 32, 0.3, false, {}, {k_batch, 1, 33, 45}},
                         {torch::kHalf, 17, 19, 8, 8, 0.5, false, {}, {}},
                         {torch::kHalf, 17, 16, 8, 16, 0.1, false, {}, {k_batch, k_heads, 17, 16}},
                         {torch::kBFloat16, 17, 19, 8, 8, 0.5, true, {}, {}},
                         {torch::kBFloat16, 64, 64, 16, 16, 0, false, 0.3, {1, k_heads, 64, 64}}}) {
    SCOPED_TRACE(testing::Message() << x.dtype << " " << x.queries << " " << x.dropout);
    const Tensor query = random({k_batch, k_heads, x.queries, x.width}, x.dtype),
                 key = random({k_batch, k_heads, x.keys, x.width}, x.dtype),
                 value = random({k_batch, k_heads, x.keys, x.width_of_values}, x.dtype);
    std::vector<Tensor> inputs = {query, key, value};
    OptionalTensor mask, kept;
    if (!x.sizes_of_mask.empty()) inputs.push_back(*(mask = random(x.sizes_of_mask, x.dtype)));
    torch::cuda::manual_seed(k_seed);
    const Tensor output = torch::scaled_dot_product_attention(query, key, value, mask, x.dropout,
                                                              x.is_causal, x.scale);
    if (x.dropout > 0) {
      kept = kept_by_efficient(torch::empty({k_batch, k_heads, x.queries, x.keys}), x.dropout,
                               k_seed, 0);
    }
    expect_same_gradients(output, in_steps(query, key, value, x, mask, kept), inputs);
  }
}

TEST(Attention, OfTheCudnnKindIsThatInSteps) {
  torch::cuda::synchronize();  // the first use of CUDA switches it off
  const Only only(sdp::SDPBackend::cudnn_attention);
  for (const Case& x : std::vector<Case>{{torch::kHalf, 32, 40, 16, 16, 0, false, {}, {}},
                                         {torch::kBFloat16, 64, 64, 32, 32, 0, true, 0.2, {}}}) {
    SCOPED_TRACE(testing::Message() << x.dtype);
    const Tensor query = random({k_batch, k_heads, x.queries, x.width}, x.dtype),
                 key = random({k_batch, k_heads, x.keys, x.width}, x.dtype),
                 value = random({k_batch, k_heads, x.keys, x.width}, x.dtype);
    const Tensor output =
        torch::scaled_dot_product_attention(query, key, value, {}, 0, x.is_causal, x.scale);
    EXPECT_NE(output.grad_fn()->name().find("Cudnn"), std::string::npos)
        << output.grad_fn()->name();
    expect_same_gradients(output, in_steps(query, key, value, x, {}, {}), {query, key, value});
  }
}

TEST(Attention, OfTheFlashKindIsThatInSteps) {
  for (const Case& x : std::vector<Case>{{torch::kHalf, 5, 7, 8, 8, 0.3, false, {}, {}},
                                         {torch::kHalf, 40, 40, 16, 16, 0.3, true, 0.2, {}},
                                         {torch::kBFloat16, 130, 33, 8, 8, 0.5, false, {}, {}}}) {
    for (const std::int64_t heads_of_keys : {k_heads, std::int64_t{2}}) {
      const Tensor query = random({k_batch, k_heads, x.queries, x.width}, x.dtype),
                   key = random({k_batch, heads_of_keys, x.keys, x.width}, x.dtype),
                   value = random({k_batch, heads_of_keys, x.keys, x.width}, x.dtype);
      const auto results = at::_scaled_dot_product_flash_attention(
          query, key, value, x.dropout, x.is_causal, /*return_debug_mask=*/true, x.scale);
      // The sign of its entries tells.
      const Tensor kept = std::get<8>(results).slice(2, 0, x.queries).slice(3, 0, x.keys).ge(0);
      expect_same_gradients(std::get<0>(results), in_steps(query, key, value, x, {}, kept),
                            {query, key, value});
    }
  }
}

TEST(Attention, DropsAsManyAsItIsAskedTo) {
  for (const double dropout : {0.1, 0.5, 0.9}) {
    const Tensor like = torch::empty({2, 2, 256, 256});
    const double kept =
        kept_by_efficient(like, dropout, k_seed, 0).to(torch::kDouble).mean().item<double>();
    EXPECT_NEAR(kept, 1 - dropout, 0.01);
    EXPECT_FALSE(kept_by_efficient(like, dropout, k_seed, 4)
                     .equal(kept_by_efficient(like, dropout, k_seed, 0)));
  }
  const Tensor x = torch::ones({1, 1, 8, 8}, k_gpu);
  EXPECT_TRUE(torch::scaled_dot_product_attention(x, x, x, {}, 1.0).eq(0).all().item<bool>());
}

TEST(Attention, DropsTheSameByTheSameSeed) {
  for (const auto dtype : {torch::kHalf, torch::kFloat}) {  // flash, efficient
    const Tensor x = torch::randn({2, 2, 32, 16}, torch::TensorOptions(k_gpu).dtype(dtype));
    const auto attended = [&] { return torch::scaled_dot_product_attention(x, x, x, {}, 0.5); };
    torch::cuda::manual_seed(k_seed);
    const Tensor first = attended(), second = attended();
    torch::cuda::manual_seed(k_seed);
    EXPECT_TRUE(attended().equal(first));
    EXPECT_TRUE(attended().equal(second));
    EXPECT_FALSE(first.equal(second));
  }
}

TEST(Attention, DropsOthersAtEachReplay) {
  for (const auto dtype : {torch::kHalf, torch::kFloat}) {
    const auto stream = c10::cuda::getStreamFromPool();
    const c10::cuda::CUDAStreamGuard guard(stream);
    const Tensor x =
        torch::randn({2, 2, 32, 16}, torch::TensorOptions(k_gpu).dtype(dtype)).requires_grad_();
    const Tensor grad = torch::ones_like(x);
    Tensor output, gradient;
    const auto attend = [&] {
      output = torch::scaled_dot_product_attention(x, x, x, {}, 0.5);
      gradient = torch::autograd::grad({output}, {x}, {grad})[0];
    };
    attend();
    at::cuda::CUDAGraph graph;
    graph.capture_begin();
    attend();
    graph.capture_end();
    const auto replay = [&] {
      graph.replay();
      return std::pair(output.detach().clone(), gradient.clone());
    };
    torch::cuda::manual_seed(k_seed);
    const auto first = replay(), second = replay();
    EXPECT_FALSE(first.first.equal(second.first));
    torch::cuda::manual_seed(k_seed);
    attend();  // in the graph's place: its mask is the same, also in the backward pass
    EXPECT_TRUE(output.equal(first.first));
    EXPECT_TRUE(gradient.equal(first.second));
  }
}

TEST(Attention, WithDropoutTakesNoMemoryForAllPairs) {
  const Tensor x = torch::randn({1, 8, 2048, 16}, k_gpu);  // all pairs: 128 MiB
  c10::cuda::CUDACachingAllocator::resetPeakStats(0);
  const auto allocated = [] {
    return c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocated_bytes[0];
  };
  const auto before = allocated().current;
  (void)torch::scaled_dot_product_attention(x, x, x, {}, 0.5);
  EXPECT_LT(allocated().peak - before, std::int64_t{3} * static_cast<std::int64_t>(x.nbytes()));
}

// Sequences of several lengths, one after the other.
TEST(Attention, OfSequencesIsThatOfEach) {
  const std::array<std::int64_t, 3> lengths = {3, 9, 1};
  const Case one = {torch::kHalf, 0, 0, 8, 8, 0, false, {}, {}};
  const Tensor x = random({13, k_heads, 8}, torch::kHalf),
               starts =
                   torch::tensor({0, 3, 12, 13}, torch::TensorOptions(k_gpu).dtype(torch::kInt));
  const auto expected = [&] {
    std::vector<Tensor> parts;
    for (const Tensor& part : x.split_with_sizes(lengths)) {
      const Tensor y = part.transpose(0, 1).unsqueeze(0);
      parts.push_back(in_steps(y, y, y, one, {}, {}).squeeze(0).transpose(0, 1));
    }
    return torch::cat(parts);
  };
  const Tensor flash =
      std::get<0>(at::_flash_attention_forward(x, x, x, starts, starts, 9, 9, 0.0, false, false));
  expect_same_gradients(flash, expected(), {x});
  const Tensor y = x.unsqueeze(0);
  const Tensor efficient = std::get<0>(at::_efficient_attention_forward(
      y, y, y, {}, starts, starts, 9, 9, 0.0, /*custom_mask_type=*/0, /*compute_log_sumexp=*/true));
  expect_same_gradients(efficient.squeeze(0), expected(), {x});
}

TEST(Attention, OfNestedTensorsIsThatOfEach) {
  for (const auto kind : {sdp::SDPBackend::flash_attention, sdp::SDPBackend::efficient_attention}) {
    const Only only(kind);
    const Tensor a = random({k_heads, 5, 8}, torch::kHalf),
                 b = random({k_heads, 2, 8}, torch::kHalf);
    const Tensor nested =
        torch::nested::nested_tensor({a.detach(), b.detach()}).to(k_gpu, torch::kHalf);
    const auto parts = torch::scaled_dot_product_attention(nested, nested, nested).unbind();
    const Case one = {torch::kHalf, 0, 0, 8, 8, 0, false, {}, {}};
    for (const auto& [part, x] : {std::pair(parts[0], a), std::pair(parts[1], b)}) {
      const Tensor y = x.unsqueeze(0);
      EXPECT_TRUE(
          part.to(torch::kDouble).allclose(in_steps(y, y, y, one, {}, {}).squeeze(0), 5e-3, 5e-3));
    }
  }
}

// A window of flash attention, and a causal mask of more keys than queries, which begins at the end.
TEST(Attention, SeesOnlyItsWindow) {
  const Tensor query = random({1, 4, 1, 8}, torch::kHalf), key = random({1, 6, 1, 8}, torch::kHalf);
  const auto attended = [&](bool is_causal, std::optional<std::int64_t> left) {
    return std::get<0>(at::_flash_attention_forward(query, key, key, {}, {}, 4, 6, 0.0, is_causal,
                                                    false, {}, left, {}))
        .squeeze(2);
  };
  // The last query sees all keys up to its own, the last; in a window of 0 before it only that.
  EXPECT_TRUE(
      attended(true, {}).select(1, 3).allclose(attended(false, {}).select(1, 3), 1e-2, 1e-3));
  EXPECT_TRUE(attended(true, 0).equal(key.squeeze(2).slice(1, 2)));
}

TEST(Attention, RefusesWhatAGpuRefuses) {
  const Tensor x = torch::rand({1, 2, 8, 8}, k_gpu);
  EXPECT_TRUE(has(error_of([&] { (void)at::_scaled_dot_product_flash_attention(x, x, x); }),
                  "FlashAttention only support fp16 and bf16 data type"));
  const Tensor half = x.to(torch::kHalf);
  EXPECT_TRUE(has(error_of([&] {
                    (void)at::_scaled_dot_product_flash_attention(
                        half, half, half, 0.0, /*is_causal=*/false, /*return_debug_mask=*/true);
                  }),
                  "return_softmax is only supported when p_dropout > 0.0"));
}

}  // namespace
