// SPDX-License-Identifier: MIT
//
// Recurrent layers, which LibTorch leaves to cuDNN: one operation forward and one backward, which the CPU's layers compute. What
// cuDNN is asked, and what is refused, is in ATen/native/cudnn/RNN.cpp.
#include <ATen/ATen.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/function_schema.h>
#include <ATen/native/RNN.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/compute.hpp"
#include "kernels/inside_kernel.hpp"
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
    const at::AutoGradMode as_told(is_training);  // oneDNN has a layer for training, and asks this
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
  WithAutograd() = default;
  ~WithAutograd() { at::SavedTensorDefaultHooks::set_tracing(was_tracing_); }
  WithAutograd(const WithAutograd&) = delete;
  WithAutograd& operator=(const WithAutograd&) = delete;

 private:
  bool was_tracing_ = at::SavedTensorDefaultHooks::set_tracing(true);
  c10::InferenceMode no_inference_{false};
  c10::impl::ForceDispatchKeyGuard keys_{c10::impl::tls_local_dispatch_key_set().included_,
                                         c10::impl::tls_local_dispatch_key_set().excluded_ -
                                             c10::autograd_dispatch_keyset_with_ADInplaceOrView};
};

// In a backward pass the engine that runs it. Elsewhere, as in a graph's replay, the thread may hold the lock of Python, with
// which only LibTorch's own engine runs.
torch::autograd::Engine& engine() {
  using torch::autograd::Engine;
  const bool is_in_backward = torch::autograd::get_current_graph_task_id() >= 0;
  return is_in_backward ? Engine::get_default_engine() : Engine::get_base_engine();
}

// The layers are computed again: nothing but their operands has been kept for this.
void backward_on_host(const c10::OperatorHandle&, c10::DispatchKeySet, Stack* stack) {
  const bool wants_weights = torch::jit::pop(*stack).toBool();
  const auto grads = torch::jit::pop(*stack, 3);
  Layers layers(*stack);
  const WithAutograd with_autograd;
  std::vector<Tensor> inputs;
  torch::autograd::edge_list to_inputs, to_outputs;
  const auto differentiate_by = [&](Tensor& x) {
    if (!x.defined()) return;
    x = (x.is_inference() ? x.clone() : x.detach()).requires_grad_();
    inputs.push_back(x);
    to_inputs.push_back(torch::autograd::impl::gradient_edge(x));
  };
  for (Tensor* x : {&layers.input, &layers.hx, &layers.cx}) differentiate_by(*x);
  const std::size_t first_weight = inputs.size();
  for (Tensor& weight : layers.weights) {
    if (wants_weights) {
      differentiate_by(weight);
    } else if (weight.is_inference()) {
      weight = weight.clone();
    }
  }

  const auto [output, hidden, cell] = layers.compute();
  std::vector<Tensor> of_outputs;
  for (std::size_t i = 0; const Tensor& x : {output, hidden, cell}) {
    const OptionalTensor grad = grads[i++].toOptional<Tensor>();
    if (!is_given(grad)) continue;
    to_outputs.push_back(torch::autograd::impl::gradient_edge(x));
    of_outputs.push_back(wide(*grad));
  }
  const auto of_inputs =
      engine().execute(to_outputs, of_outputs, /*keep_graph=*/false,
                       /*create_graph=*/false, /*accumulate_grad=*/false, to_inputs);
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

void check_size(const char* name, const Tensor& x, at::IntArrayRef expected) {
  TORCH_CHECK(x.sizes() == expected, "Expected ", name, " size ", expected, ", got ", x.sizes());
}

// What cuDNN refuses, and what it would read beyond the end. The input's steps come first.
void check_layers(const Tensor& input, at::TensorList weights, std::int64_t weights_per_layer,
                  const Tensor& hx, const OptionalTensor& cx, std::int64_t mode,
                  std::int64_t hidden_size, std::int64_t proj_size, std::int64_t layers,
                  bool bidirectional, at::IntArrayRef batch_sizes) {
  TORCH_CHECK(at::isFloatingType(input.scalar_type()),
              "getCudnnDataTypeFromScalarType() not supported for ", input.scalar_type());
  TORCH_CHECK(mode >= k_relu && mode <= k_gru, "unrecognized cuDNN RNN mode ", mode);
  TORCH_CHECK(mode == k_lstm || !is_given(cx), "rnn: illegal defined cx for non-LSTM RNN");
  TORCH_CHECK(mode != k_lstm || is_given(cx), "rnn: an LSTM needs cx");
  TORCH_CHECK(hx.is_contiguous(), "rnn: hx is not contiguous");
  TORCH_CHECK(!is_given(cx) || cx->is_contiguous(), "rnn: cx is not contiguous");

  const std::int64_t directions = bidirectional ? 2 : 1, states = layers * directions,
                     width = proj_size == 0 ? hidden_size : proj_size;
  TORCH_CHECK(input.dim() == (batch_sizes.empty() ? 3 : 2), "rnn: the input has ", input.dim(),
              " dimensions");
  TORCH_CHECK(batch_sizes.empty() || c10::sum_integers(batch_sizes) == input.size(0),
              "rnn: the batch sizes are of ", c10::sum_integers(batch_sizes),
              " steps, the input has ", input.size(0));
  const std::int64_t sequences = batch_sizes.empty() ? input.size(1) : batch_sizes[0];
  check_size("hidden", hx, {states, sequences, width});
  if (is_given(cx)) check_size("cell", *cx, {states, sequences, hidden_size});
  TORCH_CHECK(layers > 0 && std::ssize(weights) == states * weights_per_layer, "rnn: expected ",
              weights_per_layer, " weights for each of ", states, " layers and directions, got ",
              weights.size());
  const std::int64_t rows = hidden_size * (mode == k_lstm ? 4 : mode == k_gru ? 3 : 1);
  for (std::int64_t i = 0; i < std::ssize(weights); ++i) {
    const bool is_first = i < directions * weights_per_layer;
    const std::int64_t place = i % weights_per_layer;
    const Tensor& weight = weights[static_cast<std::size_t>(i)];
    if (place == 0) {
      check_size("weight", weight, {rows, is_first ? input.size(-1) : directions * width});
    } else if (place == 1) {
      check_size("weight", weight, {rows, width});
    } else if (proj_size != 0 && place == weights_per_layer - 1) {
      check_size("weight", weight, {proj_size, hidden_size});
    } else {
      check_size("bias", weight, {rows});
    }
  }
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
  TORCH_CHECK_NOT_IMPLEMENTED(!train || dropout == 0 || layers == 1,
                              "Simulated GPUs have no _cudnn_rnn with dropout between its layers: "
                              "call lstm, gru, rnn_tanh or rnn_relu");
  const Tensor x = steps_first(input, batch_first, batch_sizes);
  check_layers(x, weights, weights_per_layer, hx, cx, mode, hidden_size, proj_size, layers,
               bidirectional, batch_sizes);
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
    const OptionalTensor& of_hidden, const OptionalTensor& of_cell, std::int64_t mode,
    std::int64_t hidden_size, std::int64_t proj_size, std::int64_t layers, bool batch_first, double,
    bool train, bool bidirectional, at::IntArrayRef batch_sizes, const OptionalTensor&,
    const Tensor&, std::array<bool, 4> wanted) {
  if (!is_given(of_output) && !is_given(of_hidden) && !is_given(of_cell))
    return {Tensor(), Tensor(), Tensor(), std::vector<Tensor>(weights.size())};
  TORCH_CHECK(train, "cudnn RNN backward can only be called in training mode");
  const auto steps = [&](const Tensor& x) { return steps_first(x, batch_first, batch_sizes); };
  const Tensor x = steps(input);
  check_layers(x, weights, weights_per_layer, hx, cx, mode, hidden_size, proj_size, layers,
               bidirectional, batch_sizes);
  const Stack results = compute(
      "simulate_gpus::recurrent_backward",
      {x, hx, cx, weights, mode, layers, weights_per_layer >= 4, train, bidirectional, batch_sizes,
       is_given(of_output) ? steps(*of_output) : OptionalTensor(), of_hidden, of_cell, wanted[3]});
  return {steps(results[0].toTensor()), results[1].toTensor(), results[2].toTensor(),
          results[3].toTensorVector()};
}

// The weights are cast at each call, the states once, as by LibTorch's own function, which has cuDNN lay them out.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> cudnn_rnn_with_autocast(
    const Tensor& input, at::TensorList weights, std::int64_t weights_per_layer,
    const OptionalTensor& buffer, const Tensor& hx, const OptionalTensor& cx, std::int64_t mode,
    std::int64_t hidden_size, std::int64_t proj_size, std::int64_t layers, bool batch_first,
    double dropout, bool train, bool bidirectional, at::IntArrayRef batch_sizes,
    const OptionalTensor& dropout_state) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::Autocast);
  const at::ScalarType dtype = weights.empty() ? at::kHalf : weights[0].scalar_type();
  for (const Tensor& weight : weights)
    TORCH_CHECK(weight.scalar_type() == dtype, "Weight scalar types do not match.");
  std::vector<Tensor> narrow = weights.vec();
  OptionalTensor narrow_buffer = buffer;
  if (dtype != at::kHalf && dtype != at::kDouble && at::isFloatingType(dtype)) {
    for (Tensor& weight : narrow) weight = weight.to(at::kHalf);
    narrow_buffer = at::empty({0}, narrow[0].options());
  }
  const auto cast = [](const auto& x) {
    return at::autocast::cached_cast(at::kHalf, x, c10::kCUDA);
  };
  return at::_cudnn_rnn(cast(input), narrow, weights_per_layer, narrow_buffer, cast(hx), cast(cx),
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

// Layers that LibTorch asks of cuDNN. Where dropout comes between them they are called one by one.
struct CudnnLayers {
  Mode mode;
  Tensor input, hx;
  OptionalTensor cx;
  at::TensorList weights;
  bool has_biases;
  std::int64_t layers;
  double dropout;
  bool train, bidirectional;
  at::IntArrayRef batch_sizes;
  bool batch_first = false;

  [[nodiscard]] States operator()() const {
    TORCH_CHECK(layers > 0 && !weights.empty(), "rnn: expected weights of at least one layer");
    OptionalTensor buffer = buffer_of(weights);
    if (!train || dropout == 0 || layers == 1) return call(input, 0, layers, buffer);
    Tensor output = input;
    std::vector<Tensor> hidden, cells;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      if (layer > 0) output = at::dropout(output, dropout, /*train=*/true);
      const auto states = call(output, layer, 1, buffer);
      if (!buffer) buffer = at::empty({0}, input.options());  // warned of once
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
      CudnnLayers{mode,  input,         hx, {},         weights, has_biases, layers, dropout,
                  train, bidirectional, {}, batch_first}();
}

template <Mode mode>
void packed_layers_of(Tensor& output, Tensor& hidden, const Tensor& input,
                      const Tensor& batch_sizes, const Tensor& hx, at::TensorList weights,
                      bool has_biases, std::int64_t layers, double dropout, bool train,
                      bool bidirectional) {
  const at::IntArrayRef numbers = numbers_of(batch_sizes);
  std::tie(output, hidden, std::ignore) = CudnnLayers{
      mode, input, hx, {}, weights, has_biases, layers, dropout, train, bidirectional, numbers}();
}

void lstm(Tensor& output, Tensor& hidden, Tensor& cell, const Tensor& input, at::TensorList states,
          at::TensorList weights, bool has_biases, std::int64_t layers, double dropout, bool train,
          bool bidirectional, bool batch_first) {
  std::tie(output, hidden, cell) =
      CudnnLayers{k_lstm, input,   states[0], states[1],     weights, has_biases,
                  layers, dropout, train,     bidirectional, {},      batch_first}();
}

void packed_lstm(Tensor& output, Tensor& hidden, Tensor& cell, const Tensor& input,
                 const Tensor& batch_sizes, at::TensorList states, at::TensorList weights,
                 bool has_biases, std::int64_t layers, double dropout, bool train,
                 bool bidirectional) {
  const at::IntArrayRef numbers = numbers_of(batch_sizes);
  std::tie(output, hidden, cell) =
      CudnnLayers{k_lstm, input,   states[0], states[1],     weights, has_biases,
                  layers, dropout, train,     bidirectional, numbers}();
}

}  // namespace

void add_recurrent(torch::Library& library) {
  const auto add = [](const std::string& schema, auto function) {
    add_on_host(torch::schema(schema.c_str()), std::move(function));
  };
  using torch::CppFunction;
  add("simulate_gpus::recurrent(" + k_arguments + ") -> (Tensor, Tensor, Tensor)",
      CppFunction::makeFromBoxedFunction<&forward_on_host>());
  add("simulate_gpus::recurrent_backward(" + k_arguments +
          ", Tensor? of_output, Tensor? of_hidden, "
          "Tensor? of_cell, bool wants_weights) -> (Tensor, Tensor, Tensor, Tensor[])",
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
