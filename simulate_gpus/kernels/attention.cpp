// SPDX-License-Identifier: MIT
//
// Fused attention: LibTorch chooses between its kernels as on a GPU, and the CPU's fused kernel
// computes in place of CUDA's. None of these needs memory for all pairs of query and key.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/cpu_gaps.hpp"
#include "kernels/operation.hpp"
#include "kernels/own_kernels.hpp"
#include "kernels/registration.hpp"

namespace simulate_gpus {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// LibTorch's choice, where the CPU's kernel can compute it: that one has no dropout, and no gradient
// of the mask. Otherwise `math`, which needs only operations that simulated GPUs have.
std::int64_t choose_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                              const OptionalTensor& mask, double dropout, bool is_causal,
                              std::optional<double> scale, bool enable_gqa) {
  const bool is_computed = !query.is_nested() && dropout == 0 &&
                           query.sizes().back() == value.sizes().back() &&
                           !(mask && mask->requires_grad());
  const auto chosen = static_cast<at::SDPBackend>(
      is_computed ? at::native::_fused_sdp_choice_cuda(query, key, value, mask, dropout, is_causal,
                                                       scale, enable_gqa)
                  : 0);
  const bool is_fused = is_computed && (chosen == at::SDPBackend::flash_attention ||
                                        chosen == at::SDPBackend::efficient_attention);
  return static_cast<std::int64_t>(is_fused ? chosen : at::SDPBackend::math);
}

// Calls an operation of the CPU on CUDA tensors.
torch::jit::Stack call(const char* name, torch::jit::Stack stack) {
  compute(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""), c10::DispatchKey::CPU, &stack);
  return stack;
}

// -> output, logsumexp
std::pair<Tensor, Tensor> attend(const Tensor& query, const Tensor& key, const Tensor& value,
                                 const OptionalTensor& mask, double dropout, bool is_causal,
                                 std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      dropout == 0, "Simulated GPUs have no dropout in fused attention; choose SDPBackend::math");
  const auto results = call("aten::_scaled_dot_product_flash_attention_for_cpu",
                            {query, key, value, dropout, is_causal, mask, scale});
  return {results[0].toTensor(), results[1].toTensor()};
}

// -> gradients of query, key, value
std::tuple<Tensor, Tensor, Tensor> attend_backward(const Tensor& grad, const Tensor& query,
                                                   const Tensor& key, const Tensor& value,
                                                   const Tensor& output, const Tensor& logsumexp,
                                                   const OptionalTensor& mask, double dropout,
                                                   bool is_causal, std::optional<double> scale) {
  const auto results =
      call("aten::_scaled_dot_product_flash_attention_for_cpu_backward",
           {grad, query, key, value, output, logsumexp, dropout, is_causal, mask, scale});
  return {results[0].toTensor(), results[1].toTensor(), results[2].toTensor()};
}

// While CUDA's flash attention is computed.
struct InFlashAttention {
  InFlashAttention() { is_flash_attention = true; }
  ~InFlashAttention() { is_flash_attention = false; }
};

// Efficient attention's backward pass takes rows of a multiple of this, or none.
constexpr std::int64_t k_row_of_logsumexp = 32;

Tensor padded(const Tensor& logsumexp, bool is_wanted) {
  if (!is_wanted) return logsumexp.new_empty({logsumexp.size(0), logsumexp.size(1), 0});
  const std::int64_t size = logsumexp.size(2),
                     padding =
                         (k_row_of_logsumexp - size % k_row_of_logsumexp) % k_row_of_logsumexp;
  return at::constant_pad_nd(logsumexp, {0, padding}, std::numeric_limits<double>::infinity());
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor> flash(
    const Tensor& query, const Tensor& key, const Tensor& value, double dropout, bool is_causal,
    bool, std::optional<double> scale) {
  const InFlashAttention here;
  auto [output, logsumexp] = attend(query, key, value, {}, dropout, is_causal, scale);
  // The state of CUDA's generator, which only dropout uses.
  const auto numbers = query.options().dtype(at::kUInt64);
  return {output,
          logsumexp,
          Tensor(),
          Tensor(),
          query.size(2),
          key.size(2),
          at::zeros({2}, numbers),
          at::zeros({}, numbers),
          at::empty({0}, query.options())};
}

std::tuple<Tensor, Tensor, Tensor> flash_backward(const Tensor& grad, const Tensor& query,
                                                  const Tensor& key, const Tensor& value,
                                                  const Tensor& output, const Tensor& logsumexp,
                                                  const Tensor&, const Tensor&, std::int64_t,
                                                  std::int64_t, double dropout, bool is_causal,
                                                  const Tensor&, const Tensor&,
                                                  std::optional<double> scale) {
  const InFlashAttention here;
  return attend_backward(grad, query, key, value, output, logsumexp, {}, dropout, is_causal, scale);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient(const Tensor& query, const Tensor& key,
                                                     const Tensor& value,
                                                     const OptionalTensor& mask,
                                                     bool wants_logsumexp, double dropout,
                                                     bool is_causal, std::optional<double> scale) {
  auto [output, logsumexp] = attend(query, key, value, mask, dropout, is_causal, scale);
  const Tensor state = at::zeros({}, query.options().dtype(at::kLong));
  return {output, padded(logsumexp, wants_logsumexp), state, state};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_backward(
    const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& mask, const Tensor& output, const Tensor& logsumexp, const Tensor&, const Tensor&,
    double dropout, std::array<bool, 4>, bool is_causal, std::optional<double> scale) {
  if (!grad.defined()) return {};
  auto [of_query, of_key, of_value] = attend_backward(
      grad, query, key, value, output, logsumexp.narrow(2, 0, query.size(2)),
      mask.defined() ? OptionalTensor(mask) : std::nullopt, dropout, is_causal, scale);
  return {of_query, of_key, of_value, Tensor()};
}

}  // namespace

void add_attention(torch::Library& library, torch::Library& nested) {
  const auto add = [&](const char* name, auto function) {
    library.impl(name, function);
    mark_as_computed(name);
  };
  add("_fused_sdp_choice", TORCH_FN(choose_attention));
  nested.impl("_fused_sdp_choice", TORCH_FN(choose_attention));
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(choose_attention);
  add("_scaled_dot_product_flash_attention", TORCH_FN(flash));
  add("_scaled_dot_product_flash_attention_backward", TORCH_FN(flash_backward));
  add("_scaled_dot_product_efficient_attention", TORCH_FN(efficient));
  add("_scaled_dot_product_efficient_attention_backward", TORCH_FN(efficient_backward));
}

}  // namespace simulate_gpus
