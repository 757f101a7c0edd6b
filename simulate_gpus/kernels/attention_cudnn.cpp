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

// cuDNN's tensors are (batch, heads, positions, width), or (positions, heads, width) for sequences
// that lie one after the other.
Tensor positions_first(const Tensor& x) {
  return x.dim() == 3 ? x.unsqueeze(0) : x.transpose(1, 2);
}
Tensor as_given(const Tensor& x, const Tensor& like) {
  return like.dim() == 3 ? x.squeeze(0) : x.transpose(1, 2);
}

OptionalTensor with_all_dimensions(const OptionalTensor& bias, const Tensor& query,
                                   const Tensor& key) {
  if (!is_given(bias)) return std::nullopt;
  const std::int64_t heads = bias->dim() == 4 ? bias->size(1) : 1;
  return bias->expand({query.size(0), heads, query.size(2), key.size(2)});
}

Attention cudnn_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                          const OptionalTensor& bias, const OptionalTensor& starts_q,
                          const OptionalTensor& starts_k, std::int64_t most_queries,
                          std::int64_t most_keys, double dropout, bool is_causal,
                          OptionalDouble scale) {
  return {.query = positions_first(query),
          .key = positions_first(key),
          .value = positions_first(value),
          .bias = with_all_dimensions(bias, query, key),
          .starts_q = given(starts_q),
          .starts_k = given(starts_k),
          .most_queries = most_queries,
          .most_keys = most_keys,
          .dropout = dropout,
          .after = is_causal ? 0 : Attention::k_endless,
          .scale = scale_of(query, scale)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor> cudnn(
    const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& bias,
    const OptionalTensor& starts_q, const OptionalTensor& starts_k, std::int64_t most_queries,
    std::int64_t most_keys, bool wants_logsumexp, double dropout, bool is_causal, bool wants_mask,
    OptionalDouble scale
#if TORCH_VERSION_MINOR >= 14
    ,
    const OptionalTensor& lengths, const OptionalTensor& table
#endif
) {
#if TORCH_VERSION_MINOR >= 14
  TORCH_CHECK_NOT_IMPLEMENTED(!is_given(lengths) && !is_given(table),
                              "Simulated GPUs have no tables of blocks in attention");
#endif
  if (is_asked("aten::_cudnn_attention_forward",
               {query, key, value, bias, starts_q, starts_k, most_queries, most_keys,
                wants_logsumexp, 0.0, is_causal, wants_mask, scale})) {
    return {};
  }
  Attention a = cudnn_attention(query, key, value, bias, starts_q, starts_k, most_queries,
                                most_keys, dropout, is_causal, scale);
  if (dropout > 0) {
    const std::int64_t pairs = a.query.size(0) * a.query.size(2) * most_queries * most_keys;
    std::tie(a.seed, a.offset) = take_state(query.device(), static_cast<std::uint64_t>(pairs));
  }
  auto [output, logsumexp, mask, state] = compute_attention(a, /*wants_mask=*/false);
  if (!state.defined()) state = at::zeros({2}, query.options().dtype(at::kUInt64));
  const auto [seed, offset] = seed_and_offset(state);
  return {as_given(output, query),
          wants_logsumexp ? logsumexp.unsqueeze(-1) : Tensor(),
          starts_q.value_or(Tensor()),
          starts_k.value_or(Tensor()),
          most_queries,
          most_keys,
          seed,
          offset,
          Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> cudnn_backward(
    const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& output, const Tensor& logsumexp, const Tensor& seed, const Tensor& offset,
    const Tensor& bias, const Tensor& starts_q, const Tensor& starts_k, std::int64_t most_queries,
    std::int64_t most_keys, double dropout, bool is_causal, OptionalDouble scale) {
  if (is_asked("aten::_cudnn_attention_backward",
               {grad, query, key, value, output, logsumexp, seed, offset, bias, starts_q, starts_k,
                most_queries, most_keys, 0.0, is_causal, scale})) {
    return {};
  }
  if (is_order_to_be_warned_of()) {
    TORCH_WARN_ONCE(
        "cuDNN Attention defaults to a non-deterministic algorithm. To explicitly enable "
        "determinism call torch.use_deterministic_algorithms(True, warn_only=False).");
  }
  Attention a = cudnn_attention(query, key, value, bias, starts_q, starts_k, most_queries,
                                most_keys, dropout, is_causal, scale);
  if (dropout > 0) {
    a.seed = seed;
    a.offset = offset;
  }
  const auto [of_query, of_key, of_value, none] = compute_attention_backward(
      a, positions_first(grad), positions_first(output),
      logsumexp.dim() == 4 ? logsumexp.squeeze(-1) : logsumexp, /*wants_bias=*/false);
  return {as_given(of_query, query), as_given(of_key, key), as_given(of_value, value)};
}

}  // namespace

void add_cudnn_attention(torch::Library& library) {
  library.impl("_cudnn_attention_forward", TORCH_FN(cudnn));
  library.impl("_cudnn_attention_backward", TORCH_FN(cudnn_backward));
  mark_as_computed("_cudnn_attention_forward");
  mark_as_computed("_cudnn_attention_backward");
}

}  // namespace simulate_gpus
