// SPDX-License-Identifier: MIT
#include "kernels/attention.hpp"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/hash.h>

#include <cmath>

#include "kernels/compute.hpp"
#include "kernels/cpu_gaps.hpp"
#include "kernels/own_kernels.hpp"
#include "kernels/registration.hpp"
#include "kernels/rehearsal.hpp"
#include "runtime/interface.hpp"

namespace simulate_gpus {
namespace {

using at::Tensor;
using torch::jit::Stack;

// What a kernel may refuse: sizes, strides, alignment, dtypes and numbers, and what is not
// deterministic.
std::uint64_t attention_form(const Stack& arguments) {
  std::size_t form = at::globalContext().deterministicAlgorithms();
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

Tensor heads_first(const Tensor& x) { return x.transpose(1, 2); }

}  // namespace

bool is_asked(const char* name, Stack arguments) {
  const auto operation = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  arguments.resize(operation.schema().arguments().size());  // newer ones may be left out
  if (rehearses()) {
    call_kept_kernel(operation, c10::DispatchKey::CPU, &arguments);
    return true;
  }
  rehearse_once(operation, arguments, attention_form(arguments));
  return false;
}

bool is_order_to_be_warned_of() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicAlgorithmsWarnOnly();
}

double scale_of(const Tensor& query, OptionalDouble scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
}

OptionalTensor given(const OptionalTensor& x) { return is_given(x) ? x : std::nullopt; }

std::pair<Tensor, Tensor> seed_and_offset(const Tensor& state) {
  const Tensor numbers = state.view(at::kLong);
  return {numbers.select(0, 0), numbers.select(0, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> compute_attention(const Attention& a, bool wants_mask) {
  if (!is_plain(a)) return attend(a, wants_mask);
  const InFlashAttention here(a.keeps_strides);
  const Stack results = compute("aten::_scaled_dot_product_flash_attention_for_cpu",
                                {heads_first(a.query), heads_first(a.key), heads_first(a.value),
                                 0.0, a.after == 0, a.bias, a.scale});
  return {heads_first(results[0].toTensor()), results[1].toTensor(), Tensor(), Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> compute_attention_backward(const Attention& a,
                                                                      const Tensor& grad,
                                                                      const Tensor& output,
                                                                      const Tensor& logsumexp,
                                                                      bool wants_bias) {
  if (!is_plain(a) || wants_bias) return attend_backward(a, grad, output, logsumexp, wants_bias);
  const InFlashAttention here(a.keeps_strides);
  const Stack results =
      compute("aten::_scaled_dot_product_flash_attention_for_cpu_backward",
              {heads_first(grad), heads_first(a.query), heads_first(a.key), heads_first(a.value),
               heads_first(output), logsumexp.narrow(2, 0, a.query.size(1)), 0.0, a.after == 0,
               a.bias, a.scale});
  return {heads_first(results[0].toTensor()), heads_first(results[1].toTensor()),
          heads_first(results[2].toTensor()), Tensor()};
}

void add_attention(torch::Library& library) {
  add_attention_blocks();
  add_flash_attention(library);
  add_efficient_attention(library);
  add_cudnn_attention(library);
  // What LibTorch composes of these.
  mark_as_computed("_fused_sdp_choice");
  for (const std::string kind : {"flash", "efficient", "cudnn"}) {
    mark_as_computed("_scaled_dot_product_" + kind + "_attention");
    mark_as_computed("_scaled_dot_product_" + kind + "_attention_backward");
  }
}

}  // namespace simulate_gpus
