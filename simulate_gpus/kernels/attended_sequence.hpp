// SPDX-License-Identifier: MIT
//
// One sequence of a batch in attention on the host: its scores and its dropout, a block of queries after the other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>

#include "kernels/attention_blocks.hpp"

namespace simulate_gpus {

/// The sequence's part of each tensor, with the heads in front: (heads, positions, width), as wide numbers. Heads of keys and
/// values are repeated. The attention outlives it.
class AttendedSequence {
 public:
  AttendedSequence(const Attention& attention, std::int64_t index);

  /// The places of this sequence's queries, or keys, in a tensor like the attention's.
  [[nodiscard]] at::Tensor queries_of(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor keys_of(const at::Tensor& x) const;

  /// The rows of its queries in the logsumexp.
  [[nodiscard]] at::Tensor row_of(const at::Tensor& logsumexp) const;

  /// The sum over the heads that share one of keys or values.
  [[nodiscard]] static at::Tensor with_own_heads(const at::Tensor& x, std::int64_t heads);

  /// Calls visit(first, rows) for each block of queries.
  void for_each_block(const std::function<void(std::int64_t, std::int64_t)>& visit) const;

  /// -> (heads, rows, keys); -infinity where a query does not see the key
  [[nodiscard]] at::Tensor scores(std::int64_t first, std::int64_t rows) const;

  /// What dropout multiplies the weights with: 0, or 1 / (1 - p).
  [[nodiscard]] at::Tensor kept(std::int64_t first, std::int64_t rows) const;

  at::Tensor query, key, value;

 private:
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> range(const at::Tensor& starts) const;
  [[nodiscard]] at::Tensor part(const at::Tensor& x, std::int64_t first, std::int64_t count) const;
  [[nodiscard]] at::Tensor with_all_heads(const at::Tensor& x) const;

  const Attention& of_;
  std::int64_t index_, first_query_ = 0, first_key_ = 0, queries_, keys_;
};

}  // namespace simulate_gpus
