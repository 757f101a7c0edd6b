// SPDX-License-Identifier: MIT
//
// Fused attention. LibTorch chooses between its kernels as on a GPU, and prepares their arguments,
// also of nested tensors; only the kernels are replaced. The CPU's fused kernel computes what it can,
// attention_blocks.cpp the rest. None of these needs memory of the GPU for all pairs of query and key.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/hash.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/attention_blocks.hpp"
#include "kernels/cpu_gaps.hpp"
#include "kernels/operation.hpp"
#include "kernels/own_kernels.hpp"
#include "kernels/random.hpp"
#include "kernels/registration.hpp"
#include "kernels/rehearsal.hpp"
#include "runtime/interface.hpp"

namespace simulate_gpus {
namespace {

using at::Tensor;
using torch::jit::Stack;
using OptionalInt = std::optional<std::int64_t>;
using OptionalDouble = std::optional<double>;

// What a kernel may refuse: sizes, strides, alignment, dtypes and numbers.
std::uint64_t form_of(const Stack& arguments) {
  std::size_t form = arguments.size();
  for (const c10::IValue& argument : arguments) {
    if (!argument.isTensor()) {
      form = c10::get_hash(form, c10::IValue::hash(argument));
    } else if (const Tensor& x = argument.toTensor(); x.defined()) {
      form = c10::get_hash(form, x.sizes().vec(), x.strides().vec(), x.scalar_type(), x.device(),
                           reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 16);
    }
  }
  return form;
}

// Throws what LibTorch's own kernel refuses. True while that one is asked: then nothing is computed.
// The arguments are without dropout, for which the kernel would take numbers from the generator.
bool is_asked(const char* name, Stack arguments) {
  const auto operation = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  if (rehearses()) {
    call_kept_kernel(operation, c10::DispatchKey::CPU, &arguments);
    return true;
  }
  rehearse_once(operation, arguments, form_of(arguments));
  return false;
}

// While CUDA's flash attention is computed.
struct InFlashAttention {
  explicit InFlashAttention(bool is_flash) { is_flash_attention = is_flash; }
  ~InFlashAttention() { is_flash_attention = false; }
};

// Whether the CPU's fused kernel computes this.
bool is_plain(const Attention& a) {
  const bool sees_all = a.after == Attention::k_endless,
             is_causal = a.after == 0 && (!a.from_end || a.query.size(1) == a.key.size(1));
  return a.dropout == 0 && !a.starts_q && !a.lengths_k && a.query.size(3) == a.value.size(3) &&
         a.query.size(2) == a.key.size(2) && a.query.size(2) == a.value.size(2) &&
         a.before == Attention::k_endless && (sees_all || is_causal);
}

Tensor padded(const Tensor& logsumexp, std::int64_t row) {
  const std::int64_t padding = (row - logsumexp.size(2) % row) % row;
  return at::constant_pad_nd(logsumexp, {0, padding}, std::numeric_limits<double>::infinity());
}

// -> output, logsumexp, debug mask, seed and offset
std::tuple<Tensor, Tensor, Tensor, Tensor> compute_forward(const Attention& a, bool wants_mask) {
  if (!is_plain(a)) return attend(a, wants_mask);
  const InFlashAttention here(a.keeps_strides);
  const Stack results = compute("aten::_scaled_dot_product_flash_attention_for_cpu",
                                {a.query.transpose(1, 2), a.key.transpose(1, 2),
                                 a.value.transpose(1, 2), 0.0, a.after == 0, a.bias, a.scale});
  return {results[0].toTensor().transpose(1, 2), results[1].toTensor(),
          at::empty({0}, a.query.options()), at::zeros({2}, a.query.options().dtype(at::kUInt64))};
}

// -> gradients of query, key, value, bias
std::tuple<Tensor, Tensor, Tensor, Tensor> compute_backward(const Attention& a, const Tensor& grad,
                                                    const Tensor& output, const Tensor& logsumexp,
                                                    bool wants_bias) {
  if (!is_plain(a) || wants_bias) return attend_backward(a, grad, output, logsumexp, wants_bias);
  const InFlashAttention here(a.keeps_strides);
  const auto heads_first = [](const Tensor& x) { return x.transpose(1, 2); };
  const Stack results =
      compute("aten::_scaled_dot_product_flash_attention_for_cpu_backward",
              {heads_first(grad), heads_first(a.query), heads_first(a.key), heads_first(a.value),
               heads_first(output), logsumexp.narrow(2, 0, a.query.size(1)), 0.0, a.after == 0,
               a.bias, a.scale});
  return {results[0].toTensor().transpose(1, 2), results[1].toTensor().transpose(1, 2),
          results[2].toTensor().transpose(1, 2), Tensor()};
}

double scale_of(const Tensor& query, OptionalDouble scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
}

// Sequences that lie one after the other have no dimension for a batch.
Tensor with_batch(const Tensor& x) { return x.dim() == 3 ? x.unsqueeze(0) : x; }
Tensor without_batch(const Tensor& x, const Tensor& like) {
  return like.dim() == 3 ? x.squeeze(0) : x;
}

OptionalTensor given(const OptionalTensor& x) { return is_given(x) ? x : std::nullopt; }

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
    OptionalInt right, const OptionalTensor& lengths_k, const OptionalTensor& slopes) {
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
  const auto [output, logsumexp, mask, state] = compute_forward(a, wants_mask);
  return {without_batch(output, query), a.row == 0 ? logsumexp.squeeze(0) : logsumexp, state,
          at::zeros({}, state.options()), mask};
}

// Seed and offset, as flash attention gives them.
void set_state(Attention& a, const Tensor& state) {
  if (a.dropout == 0) return;
  const Tensor numbers = state.view(at::kLong);
  a.seed = numbers.select(0, 0);
  a.offset = numbers.select(0, 1);
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
  Attention a = flash_attention(query, key, value, starts_q, starts_k, most_queries, most_keys,
                                dropout, is_causal, scale, left, right);
  set_state(a, state);
  const auto [of_query, of_key, of_value, none] =
      compute_backward(a, with_batch(grad), with_batch(output),
               a.row == 0 ? logsumexp.unsqueeze(0) : logsumexp, /*wants_bias=*/false);
  return {without_batch(of_query, query), without_batch(of_key, key),
          without_batch(of_value, value)};
}

// Efficient attention's logsumexp has rows of a multiple of this.
constexpr std::int64_t k_row_of_logsumexp = 32;

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
  auto [output, logsumexp, mask, state] = compute_forward(a, /*wants_mask=*/false);
  if (!wants_logsumexp) {
    logsumexp = logsumexp.new_empty({logsumexp.size(0), logsumexp.size(1), 0});
  } else if (is_plain(a)) {
    logsumexp = padded(logsumexp, a.row);
  }
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
  Attention a = efficient_attention(query, key, value, bias, starts_q, starts_k, most_queries,
                                    most_keys, dropout, mask_type, scale, window);
  if (dropout > 0) {
    a.seed = seed;
    a.offset = offset;
  }
  auto results = compute_backward(a, grad, output, logsumexp, wants_bias);
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

void add_attention(torch::Library& library) {
  const auto add = [&](const char* name, auto function) {
    library.impl(name, function);
    mark_as_computed(name);
  };
  add_attention_blocks();
  add("_flash_attention_forward", TORCH_FN(flash));
  add("_flash_attention_backward", TORCH_FN(flash_backward));
  add("_efficient_attention_forward", TORCH_FN(efficient));
  add("_efficient_attention_backward", TORCH_FN(efficient_backward));
  add("_fill_mem_eff_dropout_mask_", TORCH_FN(fill_dropout_mask));
  // Composed of these by LibTorch.
  for (const char* name :
       {"_fused_sdp_choice", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_efficient_attention_backward"})
    mark_as_computed(name);
}

}  // namespace simulate_gpus
