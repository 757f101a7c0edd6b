// SPDX-License-Identifier: MIT
#include <ATen/ATen.h>

#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "kernels/attention.hpp"
#include "kernels/own_kernels.hpp"
#include "kernels/random.hpp"
#include "kernels/registration.hpp"

namespace simulate_gpus {
namespace {

using at::Tensor;

// Efficient attention's logsumexp has rows of a multiple of this.
constexpr std::int64_t k_row_of_logsumexp = 32;

Tensor padded(const Tensor& logsumexp) {
  const std::int64_t beyond = logsumexp.size(2) % k_row_of_logsumexp;
  const std::int64_t padding = beyond == 0 ? 0 : k_row_of_logsumexp - beyond;
  return at::constant_pad_nd(logsumexp, {0, padding}, std::numeric_limits<double>::infinity());
}

Attention efficient_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                              const OptionalTensor& bias, const OptionalTensor& starts_q,
                              const OptionalTensor& starts_k, OptionalInt most_queries,
                              OptionalInt most_keys, double dropout, std::int64_t mask_type,
                              OptionalDouble scale, OptionalInt window) {
  return {.query = query,
          .key = key,
          .value = value,
          .bias = given(bias),
          .starts_q = given(starts_q),
          .starts_k = given(starts_k),
          .most_queries = is_given(starts_q) ? most_queries.value() : query.size(1),
          .most_keys = is_given(starts_k) ? most_keys.value() : key.size(1),
          .dropout = dropout,
          .before = window.value_or(0) > 0 ? *window - 1 : Attention::k_endless,
          .after = mask_type == 0 ? Attention::k_endless : 0,
          .from_end = mask_type == 2,  // sdp::CustomMaskType::CausalFromBottomRight
          .scale = scale_of(query, scale),
          .row = k_row_of_logsumexp,
          .keeps_strides = false};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt> efficient(
    const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& bias,
    const OptionalTensor& starts_q, const OptionalTensor& starts_k, OptionalInt most_queries,
    OptionalInt most_keys, double dropout, std::int64_t mask_type, bool wants_logsumexp,
    OptionalDouble scale, const OptionalTensor& lengths_k, OptionalInt window) {
  if (is_asked("aten::_efficient_attention_forward",
               {query, key, value, bias, starts_q, starts_k, most_queries, most_keys, 0.0,
                mask_type, wants_logsumexp, scale, lengths_k, window})) {
    return {};
  }
  Attention a = efficient_attention(query, key, value, bias, starts_q, starts_k, most_queries,
                                    most_keys, dropout, mask_type, scale, window);
  a.lengths_k = given(lengths_k);
  if (dropout > 0) {
    std::tie(a.seed, a.offset) = take_state(
        query.device(),
        static_cast<std::uint64_t>(query.size(0) * query.size(2) * a.most_queries * a.most_keys));
  } else {
    a.seed = a.offset = at::zeros({}, query.options().dtype(at::kLong));
  }
  auto [output, logsumexp, mask, state] = compute_attention(a, /*wants_mask=*/false);
  logsumexp = wants_logsumexp ? padded(logsumexp)
                              : logsumexp.new_empty({logsumexp.size(0), logsumexp.size(1), 0});
  return {output, logsumexp, *a.seed, *a.offset, a.most_queries, a.most_keys};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_backward(
    const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
    const OptionalTensor& bias, const Tensor& output, const OptionalTensor& starts_q,
    const OptionalTensor& starts_k, std::int64_t most_queries, std::int64_t most_keys,
    const Tensor& logsumexp, double dropout, const Tensor& seed, const Tensor& offset,
    std::int64_t mask_type, bool wants_bias, OptionalDouble scale, OptionalInt splits,
    OptionalInt window, bool shares_storage) {
  if (!grad.defined()) return {};
  if (is_asked("aten::_efficient_attention_backward",
               {grad,      query,        key,       value,     bias,   output,        starts_q,
                starts_k,  most_queries, most_keys, logsumexp, 0.0,    seed,          offset,
                mask_type, wants_bias,   scale,     splits,    window, shares_storage})) {
    return {};
  }
  if (is_order_to_be_warned_of()) {
    TORCH_WARN_ONCE(
        "Memory Efficient attention defaults to a non-deterministic algorithm. To explicitly "
        "enable "
        "determinism call torch.use_deterministic_algorithms(True, warn_only=False).");
  }
  Attention a = efficient_attention(query, key, value, bias, starts_q, starts_k, most_queries,
                                    most_keys, dropout, mask_type, scale, window);
  if (dropout > 0) {
    a.seed = seed;
    a.offset = offset;
  }
  auto results = compute_attention_backward(a, grad, output, logsumexp, wants_bias);
  if (shares_storage) {
    const Tensor all =
        at::stack({std::get<0>(results), std::get<1>(results), std::get<2>(results)}, 2);
    results = {all.select(2, 0), all.select(2, 1), all.select(2, 2), std::get<3>(results)};
  }
  return results;
}

Tensor& fill_dropout_mask(Tensor& mask, double dropout, std::int64_t seed, std::int64_t offset) {
  if (is_asked("aten::_fill_mem_eff_dropout_mask_", {mask, dropout, seed, offset})) return mask;
  return fill_dropout_numbers(mask, seed, offset);
}

}  // namespace

void add_efficient_attention(torch::Library& library) {
  library.impl("_efficient_attention_forward", TORCH_FN(efficient));
  library.impl("_efficient_attention_backward", TORCH_FN(efficient_backward));
  library.impl("_fill_mem_eff_dropout_mask_", TORCH_FN(fill_dropout_mask));
  for (const char* name : {"_efficient_attention_forward", "_efficient_attention_backward",
                           "_fill_mem_eff_dropout_mask_"})
    mark_as_computed(name);
}

}  // namespace simulate_gpus
