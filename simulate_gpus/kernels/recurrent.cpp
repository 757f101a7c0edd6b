// SPDX-License-Identifier: MIT
//
// Recurrent layers, which LibTorch leaves to cuDNN: one operation forward and one backward, which the CPU's layers compute. What
// cuDNN is asked, and what is refused, is in ATen/native/cudnn/RNN.cpp.
#include <ATen/ATen.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/function_schema.h>
#include <ATen/native/RNN.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/compute.hpp"
#include "kernels/own_kernels.hpp"
#include "kernels/registration.hpp"

namespace simulate_gpus {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using torch::jit::Stack;

enum Mode : std::int64_t { k_relu, k_tanh, k_lstm, k_gru };  // as cuDNN numbers them

// On the host ---------------------------------------------------------------------------------------------------------

// Output, hidden state; cell state of an LSTM.
using States = std::tuple<Tensor, Tensor, Tensor>;

const std::string k_arguments =
    "Tensor input, Tensor hx, Tensor? cx, Tensor[] weights, int mode, int layers, bool has_biases, "
    "bool is_training, bool is_bidirectional, int[] batch_sizes";

// cuDNN computes 16 bits in float32.
Tensor wide(const Tensor& x) {
  return x.defined() && at::isReducedFloatingType(x.scalar_type()) ? x.to(at::kFloat) : x;
}

// Layers over an input of (steps, sequences, width), or of packed sequences, with how many there are at each step.
struct Layers {
  explicit Layers(const Stack& x)
      : dtype(x[0].toTensor().scalar_type()),
        input(wide(x[0].toTensor())),
        hx(wide(x[1].toTensor())),
        cx(wide(x[2].toOptional<Tensor>().value_or(Tensor()))),
        weights(x[3].toTensorVector()),
        mode(x[4].toInt()),
        count(x[5].toInt()),
        has_biases(x[6].toBool()),
        is_training(x[7].toBool()),
        is_bidirectional(x[8].toBool()),
        batch_sizes(x[9].toIntVector()) {
    std::ranges::transform(weights, weights.begin(), wide);
  }

  [[nodiscard]] States compute() const {
    const WithoutWarnings without;                // of what the CPU's libraries lack
    const at::AutoGradMode as_told(is_training);  // by which oneDNN chooses between its layers
    const Tensor lengths = batch_sizes.empty() ? Tensor() : at::tensor(batch_sizes, at::kLong);
    const auto with = [&](const auto& layer, const auto& state) {
      return lengths.defined() ? layer(input, lengths, state, weights, has_biases, count,
                                       /*dropout=*/0., is_training, is_bidirectional)
                               : layer(input, state, weights, has_biases, count, /*dropout=*/0.,
                                       is_training, is_bidirectional, /*batch_first=*/false);
    };
    if (mode == k_lstm)
      return with([](const auto&... x) { return at::lstm(x...); }, std::vector<Tensor>{hx, cx});
    const auto [output, hidden] =
        mode == k_gru    ? with([](const auto&... x) { return at::gru(x...); }, hx)
        : mode == k_tanh ? with([](const auto&... x) { return at::rnn_tanh(x...); }, hx)
                         : with([](const auto&... x) { return at::rnn_relu(x...); }, hx);
    return {output, hidden, at::empty({0}, hidden.options())};
  }

  at::ScalarType dtype;
  Tensor input, hx, cx;
  std::vector<Tensor> weights;
  std::int64_t mode, count;
  bool has_biases, is_training, is_bidirectional;
  std::vector<std::int64_t> batch_sizes;
};

void forward_on_host(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  const Layers layers(*stack);
  const auto [output, hidden, cell] = layers.compute();
  const auto returned = [&](const Tensor& x) { return x.to(layers.dtype).contiguous(); };
  *stack = {returned(output), returned(hidden), returned(cell)};
}

// This thread's operations are differentiated, and saved without the program's hooks.
class WithAutograd {
 public:
  ~WithAutograd() { at::SavedTensorDefaultHooks::set_tracing(had_no_hooks_); }

 private:
  bool had_no_hooks_ = at::SavedTensorDefaultHooks::set_tracing(true);
  c10::impl::ForceDispatchKeyGuard keys_{c10::impl::tls_local_dispatch_key_set().included_,
                                         c10::impl::tls_local_dispatch_key_set().excluded_ -
                                             c10::autograd_dispatch_keyset_with_ADInplaceOrView};
};

// The layers are computed again: nothing but their operands has been kept for this.
void backward_on_host(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  const bool wants_weights = torch::jit::pop(*stack).toBool();
  const auto grads = torch::jit::pop(*stack, 3);
  Layers layers(*stack);
  std::vector<Tensor> inputs;
  const auto differentiate_by = [&](Tensor& x) {
    if (x.defined()) inputs.push_back(x = x.detach().requires_grad_());
  };
  for (Tensor* x : {&layers.input, &layers.hx, &layers.cx}) differentiate_by(*x);
  const std::size_t first_weight = inputs.size();
  if (wants_weights) std::ranges::for_each(layers.weights, differentiate_by);

  std::vector<Tensor> outputs, of_outputs;
  const WithAutograd with_autograd;
  const auto [output, hidden, cell] = layers.compute();
  for (std::size_t i = 0; const Tensor& x : {output, hidden, cell}) {
    const OptionalTensor grad = grads[i++].toOptional<Tensor>();
    if (!is_given(grad)) continue;
    outputs.push_back(x);
    of_outputs.push_back(wide(*grad));
  }
  const auto of_inputs = torch::autograd::grad(outputs, inputs, of_outputs, /*retain_graph=*/false,
                                               /*create_graph=*/false, /*allow_unused=*/true);
  const auto returned = [&](std::size_t i) {
    return of_inputs[i].defined() ? of_inputs[i].to(layers.dtype).contiguous()
                                  : at::zeros_like(inputs[i], layers.dtype);
  };
  c10::List<Tensor> of_weights;
  for (std::size_t i = first_weight; i < inputs.size(); ++i) of_weights.push_back(returned(i));
  *stack = {returned(0), returned(1), first_weight > 2 ? returned(2) : Tensor(), of_weights};
}

// On the GPU ----------------------------------------------------------------------------------------------------------

// How the steps lie: cuDNN is given them first.
Tensor steps_first(const Tensor& x, bool batch_first, at::IntArrayRef batch_sizes) {
  return batch_first && batch_sizes.empty() ? x.transpose(0, 1) : x;
}

void check_states(const Tensor& hx, const OptionalTensor& cx, std::int64_t mode) {
  TORCH_CHECK(mode == k_lstm || !is_given(cx), "rnn: illegal defined cx for non-LSTM RNN");
  TORCH_CHECK(hx.is_contiguous(), "rnn: hx is not contiguous");
  TORCH_CHECK(!is_given(cx) || cx->is_contiguous(), "rnn: cx is not contiguous");
}

void check_size(const char* name, const Tensor& x, at::IntArrayRef expected) {
  TORCH_CHECK(x.sizes() == expected, "Expected ", name, " size ", expected, ", got ", x.sizes());
}

// What a layer keeps of a step for its backward pass: gates and state.
Tensor reserve_for(const Tensor& output, std::int64_t mode, std::int64_t layers) {
  const std::int64_t kept = mode == k_lstm ? 5 : mode == k_gru ? 4 : 1;
  return at::empty({output.numel() * output.element_size() * layers * kept},
                   output.options().dtype(at::kByte));
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> cudnn_rnn(
    const Tensor& input, at::TensorList weights, std::int64_t weights_per_layer,
    const OptionalTensor& buffer, const Tensor& hx, const OptionalTensor& cx, std::int64_t mode,
    std::int64_t hidden_size, std::int64_t proj_size, std::int64_t layers, bool batch_first,
    double dropout, bool train, bool bidirectional, at::IntArrayRef batch_sizes,
    const OptionalTensor&) {
  at::native::check_attributes(input, weights, {hx, cx.value_or(Tensor())}, /*check_dtype=*/true);
  if (!is_given(buffer)) {
    TORCH_WARN(
        "RNN module weights are not part of single contiguous chunk of memory. This means they "
        "need to be compacted at every call, possibly greatly increasing memory usage. To compact "
        "weights again call flatten_parameters().");
  }
  check_states(hx, cx, mode);
  TORCH_CHECK_NOT_IMPLEMENTED(!train || dropout == 0 || layers == 1,
                              "Simulated GPUs have no _cudnn_rnn with dropout between its layers: "
                              "call lstm, gru, rnn_tanh or rnn_relu");
  const Tensor x = steps_first(input, batch_first, batch_sizes);
  const std::int64_t states = layers * (bidirectional ? 2 : 1),
                     sequences = batch_sizes.empty() ? x.size(1) : batch_sizes[0];
  check_size("hidden", hx, {states, sequences, proj_size == 0 ? hidden_size : proj_size});
  if (is_given(cx)) check_size("cell", *cx, {states, sequences, hidden_size});
  const Stack results =
      compute("simulate_gpus::recurrent", {x, hx, cx, weights, mode, layers, weights_per_layer >= 4,
                                           train, bidirectional, batch_sizes});
  const Tensor output = results[0].toTensor();
  return {
      steps_first(output, batch_first, batch_sizes), results[1].toTensor(), results[2].toTensor(),
      train ? reserve_for(output, mode, layers) : at::empty({0}, input.options().dtype(at::kByte)),
      is_given(buffer) ? *buffer : at::empty({0}, input.options())};
}

std::tuple<Tensor, Tensor, Tensor, std::vector<Tensor>> cudnn_rnn_backward(
    const Tensor& input, at::TensorList weights, std::int64_t weights_per_layer, const Tensor&,
    const Tensor& hx, const OptionalTensor& cx, const Tensor&, const OptionalTensor& of_output,
    const OptionalTensor& of_hidden, const OptionalTensor& of_cell, std::int64_t mode, std::int64_t,
    std::int64_t, std::int64_t layers, bool batch_first, double, bool train, bool bidirectional,
    at::IntArrayRef batch_sizes, const OptionalTensor&, const Tensor&, std::array<bool, 4> wanted) {
  if (!is_given(of_output) && !is_given(of_hidden) && !is_given(of_cell))
    return {Tensor(), Tensor(), Tensor(), std::vector<Tensor>(weights.size())};
  check_states(hx, cx, mode);
  TORCH_CHECK(train, "cudnn RNN backward can only be called in training mode");
  const auto steps = [&](const Tensor& x) { return steps_first(x, batch_first, batch_sizes); };
  const Stack results = compute(
      "simulate_gpus::recurrent_backward",
      {steps(input), hx, cx, weights, mode, layers, weights_per_layer >= 4, train, bidirectional,
       batch_sizes, is_given(of_output) ? steps(*of_output) : OptionalTensor(), of_hidden, of_cell,
       wanted[3]});
  return {steps(results[0].toTensor()), results[1].toTensor(), results[2].toTensor(),
          results[3].toTensorVector()};
}

// The weights in float16 where they are not. LibTorch's own function has cuDNN lay them out.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> cudnn_rnn_with_autocast(
    const Tensor& input, at::TensorList weights, std::int64_t weights_per_layer,
    const OptionalTensor& buffer, const Tensor& hx, const OptionalTensor& cx, std::int64_t mode,
    std::int64_t hidden_size, std::int64_t proj_size, std::int64_t layers, bool batch_first,
    double dropout, bool train, bool bidirectional, at::IntArrayRef batch_sizes,
    const OptionalTensor& dropout_state) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::Autocast);
  for (const Tensor& weight : weights) {
    TORCH_CHECK(weight.scalar_type() == weights[0].scalar_type(),
                "Weight scalar types do not match.");
  }
  const auto cast = [](const auto& x) {
    return at::autocast::cached_cast(at::kHalf, x, c10::kCUDA);
  };
  const std::vector<Tensor> narrow = cast(weights);
  const bool are_cast = narrow[0].scalar_type() != weights[0].scalar_type();
  return at::_cudnn_rnn(cast(input), narrow, weights_per_layer,
                        are_cast ? at::empty({0}, narrow[0].options()) : buffer, cast(hx), cast(cx),
                        mode, hidden_size, proj_size, layers, batch_first, dropout, train,
                        bidirectional, batch_sizes, dropout_state);
}

// For LibTorch's layers -----------------------------------------------------------------------------------------------

// The memory of all weights, where they lie as flatten_parameters() has laid them (kernels/cudnn.cpp).
OptionalTensor buffer_of(at::TensorList weights) {
  const Tensor& first = weights[0];
  std::int64_t end = first.storage_offset();
  for (const Tensor& weight : weights) {
    if (!weight.is_contiguous() || !weight.is_alias_of(first) || weight.storage_offset() != end)
      return std::nullopt;
    end += weight.numel();
  }
  return at::empty({0}, first.options())
      .set_(first.storage(), first.storage_offset(), {end - first.storage_offset()}, {1});
}

// Layers that LibTorch wants of cuDNN. Where dropout comes between them they are called one by one.
struct Wanted {
  Mode mode;
  Tensor input, hx;
  OptionalTensor cx;
  at::TensorList weights;
  bool has_biases;
  std::int64_t layers;
  double dropout;
  bool train, bidirectional, batch_first;
  at::IntArrayRef batch_sizes = {};

  [[nodiscard]] States operator()() const {
    const OptionalTensor buffer = buffer_of(weights);
    if (!train || dropout == 0 || layers == 1) return call(input, 0, layers, buffer);
    Tensor output = input;
    std::vector<Tensor> hidden, cells;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      if (layer > 0) output = at::dropout(output, dropout, /*train=*/true);
      const auto states = call(output, layer, 1, buffer);
      output = std::get<0>(states);
      hidden.push_back(std::get<1>(states));
      cells.push_back(std::get<2>(states));
    }
    return {output, at::cat(hidden), at::cat(cells)};
  }

 private:
  [[nodiscard]] States call(const Tensor& x, std::int64_t first, std::int64_t count,
                            const OptionalTensor& buffer) const {
    const std::int64_t states = bidirectional ? 2 : 1;
    const auto of = [&](const Tensor& state) {
      return count == layers ? state : state.narrow(0, first * states, count * states);
    };
    const auto per_layer = weights.size() / static_cast<std::size_t>(layers);
    const bool is_projected = cx && cx->size(2) != hx.size(2);
    const auto results = at::_cudnn_rnn(
        x,
        weights.slice(static_cast<std::size_t>(first) * per_layer,
                      static_cast<std::size_t>(count) * per_layer),
        (has_biases ? 4 : 2) + (is_projected ? 1 : 0), buffer, of(hx),
        cx ? OptionalTensor(of(*cx)) : cx, mode, is_projected ? cx->size(2) : hx.size(2),
        is_projected ? hx.size(2) : 0, count, batch_first, /*dropout=*/0., train, bidirectional,
        batch_sizes, /*dropout_state=*/{});
    return {std::get<0>(results), std::get<1>(results), std::get<2>(results)};
  }
};

at::IntArrayRef numbers_of(const Tensor& batch_sizes) {
  TORCH_CHECK(batch_sizes.dim() == 1, "batch_sizes tensor should be 1D");
  TORCH_CHECK(batch_sizes.is_cpu(), "batch_sizes tensor should be on CPU, but got ",
              batch_sizes.device());
  return {batch_sizes.const_data_ptr<std::int64_t>(),
          static_cast<std::size_t>(batch_sizes.numel())};
}

template <Mode mode>
void layers_of(Tensor& output, Tensor& hidden, const Tensor& input, const Tensor& hx,
               at::TensorList weights, bool has_biases, std::int64_t layers, double dropout,
               bool train, bool bidirectional, bool batch_first) {
  std::tie(output, hidden, std::ignore) =
      Wanted{mode,  input,         hx,         {}, weights, has_biases, layers, dropout,
             train, bidirectional, batch_first}();
}

template <Mode mode>
void packed_layers_of(Tensor& output, Tensor& hidden, const Tensor& input,
                      const Tensor& batch_sizes, const Tensor& hx, at::TensorList weights,
                      bool has_biases, std::int64_t layers, double dropout, bool train,
                      bool bidirectional) {
  std::tie(output, hidden, std::ignore) = Wanted{mode,
                                                 input,
                                                 hx,
                                                 {},
                                                 weights,
                                                 has_biases,
                                                 layers,
                                                 dropout,
                                                 train,
                                                 bidirectional,
                                                 /*batch_first=*/false,
                                                 numbers_of(batch_sizes)}();
}

void lstm(Tensor& output, Tensor& hidden, Tensor& cell, const Tensor& input, at::TensorList states,
          at::TensorList weights, bool has_biases, std::int64_t layers, double dropout, bool train,
          bool bidirectional, bool batch_first) {
  std::tie(output, hidden, cell) =
      Wanted{k_lstm, input,   states[0], states[1],     weights,    has_biases,
             layers, dropout, train,     bidirectional, batch_first}();
}

void packed_lstm(Tensor& output, Tensor& hidden, Tensor& cell, const Tensor& input,
                 const Tensor& batch_sizes, at::TensorList states, at::TensorList weights,
                 bool has_biases, std::int64_t layers, double dropout, bool train,
                 bool bidirectional) {
  std::tie(output, hidden, cell) = Wanted{k_lstm,
                                          input,
                                          states[0],
                                          states[1],
                                          weights,
                                          has_biases,
                                          layers,
                                          dropout,
                                          train,
                                          bidirectional,
                                          /*batch_first=*/false,
                                          numbers_of(batch_sizes)}();
}

}  // namespace

void add_recurrent(torch::Library& library) {
  const auto add_on_host_too = [](const char* name, const std::string& rest, auto function) {
    add_on_host(torch::schema((name + ("(" + k_arguments + rest)).c_str()), std::move(function));
  };
  using torch::CppFunction;
  add_on_host_too("simulate_gpus::recurrent", ") -> (Tensor, Tensor, Tensor)",
                  CppFunction::makeFromBoxedFunction<&forward_on_host>());
  add_on_host_too("simulate_gpus::recurrent_backward",
                  ", Tensor? of_output, Tensor? of_hidden, Tensor? of_cell, bool wants_weights) -> "
                  "(Tensor, Tensor, Tensor, Tensor[])",
                  CppFunction::makeFromBoxedFunction<&backward_on_host>());
  library.impl("_cudnn_rnn", TORCH_FN(cudnn_rnn));
  library.impl("_cudnn_rnn_backward", TORCH_FN(cudnn_rnn_backward));
  library_of(c10::DispatchKey::Autocast).impl("_cudnn_rnn", TORCH_FN(cudnn_rnn_with_autocast));
  mark_as_computed("_cudnn_rnn");
  mark_as_computed("_cudnn_rnn_backward");
  at::native::lstm_cudnn_stub.set_cuda_dispatch_ptr(lstm);
  at::native::lstm_packed_cudnn_stub.set_cuda_dispatch_ptr(packed_lstm);
  at::native::gru_cudnn_stub.set_cuda_dispatch_ptr(layers_of<k_gru>);
  at::native::gru_packed_cudnn_stub.set_cuda_dispatch_ptr(packed_layers_of<k_gru>);
  at::native::rnn_tanh_cudnn_stub.set_cuda_dispatch_ptr(layers_of<k_tanh>);
  at::native::rnn_tanh_packed_cudnn_stub.set_cuda_dispatch_ptr(packed_layers_of<k_tanh>);
  at::native::rnn_relu_cudnn_stub.set_cuda_dispatch_ptr(layers_of<k_relu>);
  at::native::rnn_relu_packed_cudnn_stub.set_cuda_dispatch_ptr(packed_layers_of<k_relu>);
}

}  // namespace simulate_gpus
