// SPDX-License-Identifier: MIT
//
// GPU-only operations, composed of others. add_at_once: of the CPU's, as one operation of the GPU. add: of operations of
// the GPU, as what they draw is a GPU's random numbers, or as they call one operation alone. Results have the layouts of
// LibTorch's own kernels (for the cells see ATen/native/cuda/RNN.cu).
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/UnaryOps.h>

#include <array>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/own_kernels.hpp"
#include "kernels/registration.hpp"

// Of a header that is not installed.
namespace at::native {
DECLARE_DISPATCH(Tensor (*)(const Tensor&, IntArrayRef), flatten_indices_stub)
}

namespace simulate_gpus {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor plus(const Tensor& gates, const OptionalTensor& bias) {
  return is_given(bias) ? gates + *bias : gates;
}

// The derivatives of sigmoid and tanh, by their values.
Tensor sigmoid_slope(const Tensor& y) { return y * (1 - y); }
Tensor tanh_slope(const Tensor& y) { return 1 - y * y; }

// -> hidden state, cell state, workspace: the four gates (input, forget, cell, output)
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                             const Tensor& cell, const OptionalTensor& input_bias,
                                             const OptionalTensor& hidden_bias) {
  const auto gates = (plus(input_gates, input_bias) + plus(hidden_gates, hidden_bias)).chunk(4, 1);
  const Tensor in = gates[0].sigmoid(), forget = gates[1].sigmoid(), candidate = gates[2].tanh(),
               out = gates[3].sigmoid();
  Tensor new_cell = forget * cell + in * candidate;
  Tensor hidden = out * new_cell.tanh();
  return {hidden, new_cell, at::cat({in, forget, candidate, out}, 1)};
}

// -> gradients of the gates, of the cell state, of the biases
std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const OptionalTensor& grad_hidden,
                                                      const OptionalTensor& grad_cell,
                                                      const Tensor& cell, const Tensor& new_cell,
                                                      const Tensor& workspace, bool has_bias) {
  if (!is_given(grad_hidden) && !is_given(grad_cell)) return {};
  const auto gates = workspace.chunk(4, 1);
  const Tensor &in = gates[0], &forget = gates[1], &candidate = gates[2], &out = gates[3];
  const Tensor activated = new_cell.tanh();
  const Tensor from_hidden = is_given(grad_hidden) ? *grad_hidden : at::zeros_like(new_cell);
  Tensor of_cell = from_hidden * out * tanh_slope(activated);
  if (is_given(grad_cell)) of_cell = of_cell + *grad_cell;
  Tensor of_gates =
      at::cat({of_cell * candidate * sigmoid_slope(in), of_cell * cell * sigmoid_slope(forget),
               of_cell * in * tanh_slope(candidate), from_hidden * activated * sigmoid_slope(out)},
              1);
  return {of_gates, of_cell * forget, has_bias ? of_gates.sum(0) : Tensor()};
}

// -> hidden state, workspace: reset and update gate, candidate, old hidden state, and the hidden
// state's share of the candidate
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                    const Tensor& hidden, const OptionalTensor& input_bias,
                                    const OptionalTensor& hidden_bias) {
  const auto from_input = plus(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = plus(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor reset = (from_input[0] + from_hidden[0]).sigmoid();
  const Tensor update = (from_input[1] + from_hidden[1]).sigmoid();
  const Tensor candidate = (from_input[2] + reset * from_hidden[2]).tanh();
  Tensor new_hidden = candidate + update * (hidden - candidate);
  return {new_hidden, at::cat({reset, update, candidate, hidden, from_hidden[2]}, 1)};
}

// -> gradients of the input's and the hidden state's gates, of the hidden state, of both biases
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad,
                                                                     const Tensor& workspace,
                                                                     bool has_bias) {
  const auto saved = workspace.chunk(5, 1);
  const Tensor &reset = saved[0], &update = saved[1], &candidate = saved[2], &hidden = saved[3],
               &share = saved[4];
  const Tensor of_update = grad * (hidden - candidate) * sigmoid_slope(update);
  const Tensor of_candidate = grad * (1 - update) * tanh_slope(candidate);
  const Tensor of_reset = of_candidate * share * sigmoid_slope(reset);
  Tensor of_input_gates = at::cat({of_reset, of_update, of_candidate}, 1);
  Tensor of_hidden_gates = at::cat({of_reset, of_update, of_candidate * reset}, 1);
  return {of_input_gates, of_hidden_gates, grad * update,
          has_bias ? of_input_gates.sum(0) : Tensor(),
          has_bias ? of_hidden_gates.sum(0) : Tensor()};
}

// -> gradients of the input and of the weight
std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& grad, const Tensor& input,
                                             at::IntArrayRef normalized_shape,
                                             const Tensor& inverse_rms,
                                             const OptionalTensor& weight,
                                             std::array<bool, 2> wanted) {
  std::vector<std::int64_t> normalized(normalized_shape.size()), others;
  const auto rank = static_cast<std::int64_t>(normalized_shape.size());
  std::iota(normalized.begin(), normalized.end(), -rank);
  for (std::int64_t dim = 0; dim < input.dim() - rank; ++dim) others.push_back(dim);
  const Tensor scaled = input * inverse_rms;
  const Tensor of_scaled = is_given(weight) ? grad * *weight : grad;
  Tensor of_input, of_weight;
  if (wanted[0]) {
    of_input = ((of_scaled - scaled * (of_scaled * scaled).mean(normalized, /*keepdim=*/true)) *
                inverse_rms)
                   .to(input.scalar_type());
  }
  if (wanted[1] && is_given(weight)) {
    of_weight = grad * scaled;
    if (!others.empty()) of_weight = of_weight.sum(others);
    of_weight = of_weight.to(weight->scalar_type());
  }
  return {of_input, of_weight};
}

// The CPU's kernel draws from the CPU's generator, and has no argument for another.
std::tuple<Tensor, Tensor> dropout(const Tensor& input, double p, std::optional<bool> train) {
  if (!train.value_or(true)) return {input.clone(), at::ones_like(input, at::kBool)};
  const at::ScalarType dtype = input.scalar_type();
  const bool has_kernel =
      dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16;
  TORCH_CHECK_NOT_IMPLEMENTED(has_kernel || p == 0 || p == 1 || input.numel() == 0,
                              "\"fused_dropout\" not implemented for '", toString(dtype), "'");
  Tensor mask = at::empty_like(input, input.options().dtype(at::kBool)).bernoulli_(1 - p);
  return {input * mask * (p == 1 ? 0 : 1 / (1 - p)), mask};
}

// The places of a sparse tensor's values in a dense one. The check of its invariants launches it.
Tensor flatten_indices(const Tensor& indices, at::IntArrayRef sizes) {
  Tensor places = at::zeros({indices.size(1)}, indices.options());
  for (std::int64_t dim = 0; dim < indices.size(0); ++dim)
    places = places * sizes[static_cast<std::size_t>(dim)] + indices[dim];
  return places;
}

// LibTorch compiles its kernel while the program runs.
void kaiser_window(at::TensorIteratorBase& iterator, std::int64_t length, double beta) {
  const Tensor places = iterator.tensor(1).to(at::toOpMathType(iterator.common_dtype()));
  const Tensor x = places * (2. / static_cast<double>(length - 1)) - 1;
  const Tensor most = at::i0(at::scalar_tensor(beta, at::kDouble));
  iterator.tensor(0).copy_(at::i0((1 - x * x).clamp_min(0).sqrt() * beta) / most.item());
}

// A product with an out_dtype, which a GPU rounds once: that of operands of this dtype. Its arguments are those of the plain
// product, with out_dtype behind the operands.
void product_of_dtype(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = operation.schema();
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(schema.arguments().size());
  const auto given_dtype = first + *schema.argumentIndexWithName("out_dtype");
  const auto dtype = given_dtype->toScalarType(),
             from = (given_dtype - 1)->toTensor().scalar_type();
  const bool is_wider = dtype == at::kFloat && (from == at::kHalf || from == at::kBFloat16);
  TORCH_CHECK(dtype == from || is_wider,
              "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
  for (auto operand = first; operand != given_dtype; ++operand)
    *operand = operand->toTensor().to(dtype);
  stack->erase(given_dtype);
  c10::Dispatcher::singleton()
      .findSchemaOrThrow(schema.name().c_str(), schema.overload_name() == "dtype" ? "" : "out")
      .callBoxed(stack);
}

}  // namespace

void add_gpu_only(torch::Library& library) {
  const auto add = [&](const char* name, auto function) {
    library.impl(name, std::move(function));
    mark_as_computed(name);
  };
  add_at_once(library, "_thnn_fused_lstm_cell", torch::CppFunction(TORCH_FN(lstm_cell)));
  add_at_once(library, "_thnn_fused_lstm_cell_backward_impl",
              torch::CppFunction(TORCH_FN(lstm_cell_backward)));
  add_at_once(library, "_thnn_fused_gru_cell", torch::CppFunction(TORCH_FN(gru_cell)));
  add_at_once(library, "_thnn_fused_gru_cell_backward",
              torch::CppFunction(TORCH_FN(gru_cell_backward)));
  add_at_once(library, "_fused_rms_norm_backward", torch::CppFunction(TORCH_FN(rms_norm_backward)));
  add("native_dropout", TORCH_FN(dropout));
  for (const char* name : {"mm.dtype", "mm.dtype_out", "addmm.dtype", "addmm.dtype_out",
                           "bmm.dtype", "bmm.dtype_out", "baddbmm.dtype", "baddbmm.dtype_out"})
    add(name, torch::CppFunction::makeFromBoxedFunction<&product_of_dtype>());
  at::native::flatten_indices_stub.set_cuda_dispatch_ptr(flatten_indices);
  at::native::kaiser_window_stub.set_cuda_dispatch_ptr(kaiser_window);
}

}  // namespace simulate_gpus
