// SPDX-License-Identifier: MIT
//
// Attention on the host, a block of queries after the other: what CUDA's kernels compute and the
// CPU's fused kernel does not. Dropout, gradients of the bias, values of another width than the
// queries, fewer heads of keys, windows, and sequences of several lengths in one tensor.
//
// Both are operations of their own, so that they are counted, watched and captured as any other:
// what they keep in between takes no memory of a simulated GPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>

namespace simulate_gpus {

using OptionalTensor = std::optional<at::Tensor>;

/// What forward and backward pass are given. All tensors are on a simulated GPU, but for a seed and
/// an offset that were taken outside a capture.
struct Attention {
  static constexpr std::int64_t k_endless = std::numeric_limits<std::int32_t>::max();

  at::Tensor query, key, value;  // (batch, positions, heads, width)
  OptionalTensor bias = {};      // (batch, heads, queries, keys)
  // Of sequences that lie one after the other in a batch of 1: where each begins, and where the last
  // ends; how many keys of each are used.
  OptionalTensor starts_q = {}, starts_k = {}, lengths_k = {};
  std::int64_t most_queries, most_keys;  // of one sequence
  double dropout = 0;
  OptionalTensor seed = {}, offset = {};  // of dropout
  // A query sees the keys from so many before its own place to so many after it. Places are counted
  // from the beginning of a sequence, or from its end.
  std::int64_t before = k_endless, after = k_endless;
  bool from_end = false;
  double scale;
  // The rows of the logsumexp, (batch, heads, row), are of a multiple of this. 0: (1, heads, positions).
  std::int64_t row = 1;
  bool keeps_strides = true;  // results have the strides of the arguments; else they are contiguous
};

/// -> output; logsumexp; a debug mask, if it is wanted: the weights before they are divided by their
/// sum, negative where dropped; seed and offset as two numbers.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attend(const Attention& attention,
                                                                  bool wants_mask);

/// -> gradients of query, key, value, and of the bias if it is wanted
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attend_backward(
    const Attention& attention, const at::Tensor& grad, const at::Tensor& output,
    const at::Tensor& logsumexp, bool wants_bias);

/// Fills a tensor (batch, heads, queries, keys) with the numbers that dropout compares with its
/// probability.
at::Tensor& fill_dropout_numbers(at::Tensor& numbers, std::int64_t seed, std::int64_t offset);

/// To be called once.
void add_attention_blocks();

}  // namespace simulate_gpus
