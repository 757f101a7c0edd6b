// SPDX-License-Identifier: MIT
#include <ATen/ATen.h>

#include <optional>
#include <tuple>
#include <utility>

#include <torch/version.h>

#include "kernels/attention.hpp"
#include "kernels/own_kernels.hpp"
#include "kernels/random.hpp"
#include "kernels/registration.hpp"

namespace simulate_gpus {
namespace {

using at::Tensor;

// Sequences that lie one after the other have no dimension for a batch.
Tensor with_batch(const Tensor& x) { return x.dim() == 3 ? x.unsqueeze(0) : x; }
Tensor without_batch(const Tensor& x, const Tensor& like) {
  return like.dim() == 3 ? x.squeeze(0) : x;
}

// A negative width of a window is none.
std::int64_t width_of(OptionalInt window) {
  return window.value_or(-1) < 0 ? Attention::k_endless : *window;
}

Attention flash_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                          const OptionalTensor& starts_q, const OptionalTensor& starts_k,
                          std::int64_t most_queries, std::int64_t most_keys, double dropout,
                          bool is_causal, OptionalDouble scale, OptionalInt left,
                          OptionalInt right) {
  return {.query = with_batch(query),
          .key = with_batch(key),
          .value = with_batch(value),
          .starts_q = given(starts_q),
          .starts_k = given(starts_k),
          .most_queries = is_given(starts_q) ? most_queries : query.size(1),
          .most_keys = is_given(starts_k) ? most_keys : key.size(1),
          .dropout = dropout,
          .before = width_of(left),
          .after = is_causal ? 0 : width_of(right),
          .from_end = true,
          .scale = scale_of(query, scale),
          .row = is_given(starts_q) ? 0 : 1};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> flash(
    const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& starts_q,
    const OptionalTensor& starts_k, std::int64_t most_queries, std::int64_t most_keys,
    double dropout, bool is_causal, bool wants_mask, OptionalDouble scale, OptionalInt left,
    OptionalInt right, const OptionalTensor& lengths_k, const OptionalTensor& slopes
#if TORCH_VERSION_MINOR >= 12
    ,
    const OptionalTensor& table, OptionalInt
#endif
) {
#if TORCH_VERSION_MINOR >= 12
  TORCH_CHECK_NOT_IMPLEMENTED(!is_given(table),
                              "Simulated GPUs have no tables of blocks in attention");
#endif
  if (is_asked("aten::_flash_attention_forward",
               {query, key, value, starts_q, starts_k, most_queries, most_keys, 0.0, is_causal,
                wants_mask && dropout == 0, scale, left, right, lengths_k, slopes})) {
    return {};
  }
  TORCH_CHECK_NOT_IMPLEMENTED(!is_given(slopes),
                              "Simulated GPUs have no ALiBi slopes in flash attention");
  Attention a = flash_attention(query, key, value, starts_q, starts_k, most_queries, most_keys,
                                dropout, is_causal, scale, left, right);
  a.lengths_k = given(lengths_k);
  if (dropout > 0) {
    const std::int64_t sequences = a.starts_q ? a.starts_q->size(0) - 1 : a.query.size(0);
    std::tie(a.seed, a.offset) =
        take_state(query.device(), static_cast<std::uint64_t>(sequences * a.query.size(2) * 32));
  }
  auto [output, logsumexp, mask, state] = compute_attention(a, wants_mask);
  const auto numbers = query.options().dtype(at::kUInt64);
  if (!state.defined()) {
    mask = at::empty({0}, query.options());
    state = at::zeros({2}, numbers);
  }
  return {without_batch(output, query), a.row == 0 ? logsumexp.squeeze(0) : logsumexp, state,
          at::zeros({}, numbers), mask};
}

std::tuple<Tensor, Tensor, Tensor> flash_backward(
    const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& output, const Tensor& logsumexp, const Tensor& starts_q, const Tensor& starts_k,
    std::int64_t most_queries, std::int64_t most_keys, double dropout, bool is_causal,
    const Tensor& state, const Tensor& unused, OptionalDouble scale, OptionalInt left,
    OptionalInt right) {
  if (is_asked("aten::_flash_attention_backward",
               {grad, query, key, value, output, logsumexp, starts_q, starts_k, most_queries,
                most_keys, 0.0, is_causal, state, unused, scale, left, right})) {
    return {};
  }
  if (is_order_to_be_warned_of()) {
    TORCH_WARN_ONCE(
        "Flash Attention defaults to a non-deterministic algorithm. To explicitly enable "
        "determinism call torch.use_deterministic_algorithms(True, warn_only=False).");
  }
  Attention a = flash_attention(query, key, value, starts_q, starts_k, most_queries, most_keys,
                                dropout, is_causal, scale, left, right);
  if (dropout > 0) std::tie(a.seed, a.offset) = seed_and_offset(state);
  const auto [of_query, of_key, of_value, none] = compute_attention_backward(
      a, with_batch(grad), with_batch(output), a.row == 0 ? logsumexp.unsqueeze(0) : logsumexp,
      /*wants_bias=*/false);
  return {without_batch(of_query, query), without_batch(of_key, key),
          without_batch(of_value, value)};
}

}  // namespace

void add_flash_attention(torch::Library& library) {
  library.impl("_flash_attention_forward", TORCH_FN(flash));
  library.impl("_flash_attention_backward", TORCH_FN(flash_backward));
  mark_as_computed("_flash_attention_forward");
  mark_as_computed("_flash_attention_backward");
}

}  // namespace simulate_gpus
