// SPDX-License-Identifier: MIT
//
// What LibTorch gives to cuDNN, composed of operations that simulated GPUs have. Recurrent layers are in recurrent.cpp.
#include <ATen/ATen.h>
#include <ATen/core/stack.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/own_kernels.hpp"
#include "kernels/registration.hpp"
#include "runtime/interface.hpp"
#include "runtime/settings.hpp"

namespace simulate_gpus {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

void accepts_nothing(const c10::OperatorHandle& operation, c10::DispatchKeySet,
                     torch::jit::Stack* stack) {
  torch::jit::drop(*stack, operation.schema().arguments().size());
  stack->emplace_back(false);
}

// -> loss, gradient of the sum of the losses. The lengths are numbers or a tensor of them.
template <class Lengths>
std::tuple<Tensor, Tensor> cudnn_ctc_loss(const Tensor& log_probs, const Tensor& targets,
                                          Lengths input_lengths, Lengths target_lengths,
                                          std::int64_t blank, bool, bool zero_infinity) {
  auto [loss, alpha] =
      at::_ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity);
  Tensor of_inputs = at::_ctc_loss_backward(at::ones_like(loss), log_probs, targets, input_lengths,
                                            target_lengths, loss, alpha, blank, zero_infinity);
  return {loss, of_inputs};
}

// LibTorch's own convolution, while it is rehearsed, asks for cuDNN's, which are made of it. The rehearsal ends
// here, with what cuDNN refuses by the dtype.
void end_in_rehearsal(const Tensor& input) {
  if (!rehearses()) return;
  const at::ScalarType dtype = input.scalar_type();
  const bool has_engine = at::isFloatingType(dtype);
  TORCH_CHECK(has_engine || dtype == at::kInt || dtype == at::kChar || dtype == at::kByte,
              "getCudnnDataTypeFromScalarType() not supported for ", dtype);
  TORCH_CHECK(has_engine, "GET was unable to find an engine to execute this computation");
  TORCH_CHECK(false, "cuDNN error: a rehearsal begins no work of libraries");
}

Tensor cudnn_convolution(const Tensor& input, const Tensor& weight, at::IntArrayRef padding,
                         at::IntArrayRef stride, at::IntArrayRef dilation, std::int64_t groups,
                         bool, bool, bool) {
  end_in_rehearsal(input);
  return at::convolution(input, weight, {}, stride, padding, dilation, /*transposed=*/false,
                         std::vector<std::int64_t>(stride.size()), groups);
}

Tensor cudnn_convolution_transpose(const Tensor& input, const Tensor& weight,
                                   at::IntArrayRef padding, at::IntArrayRef output_padding,
                                   at::IntArrayRef stride, at::IntArrayRef dilation,
                                   std::int64_t groups, bool, bool, bool) {
  end_in_rehearsal(input);
  return at::convolution(input, weight, {}, stride, padding, dilation, /*transposed=*/true,
                         output_padding, groups);
}

// In convolutions that torch.jit.optimize_for_inference has joined with what follows them.
Tensor cudnn_convolution_relu(const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
                              at::IntArrayRef stride, at::IntArrayRef padding,
                              at::IntArrayRef dilation, std::int64_t groups) {
  return at::convolution(input, weight, bias, stride, padding, dilation, /*transposed=*/false,
                         std::vector<std::int64_t>(stride.size()), groups)
      .relu();
}

Tensor cudnn_convolution_add_relu(const Tensor& input, const Tensor& weight, const Tensor& added,
                                  const std::optional<at::Scalar>& factor,
                                  const OptionalTensor& bias, at::IntArrayRef stride,
                                  at::IntArrayRef padding, at::IntArrayRef dilation,
                                  std::int64_t groups) {
  return at::convolution(input, weight, bias, stride, padding, dilation, /*transposed=*/false,
                         std::vector<std::int64_t>(stride.size()), groups)
      .add(added, factor.value_or(1))
      .relu();
}

std::tuple<Tensor, Tensor, Tensor, Tensor> cudnn_batch_norm(
    const Tensor& input, const Tensor& weight, const OptionalTensor& bias,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, bool training,
    double average_factor, double epsilon) {
  auto [output, mean, inverse_deviation] = at::native_batch_norm(
      input, weight, bias, running_mean, running_var, training, average_factor, epsilon);
  if (!training) {
    mean = at::empty({0}, weight.options());
    inverse_deviation = at::empty({0}, weight.options());
  }
  return {output, mean, inverse_deviation, at::empty({0}, input.options().dtype(at::kByte))};
}

std::tuple<Tensor, Tensor, Tensor> cudnn_batch_norm_backward(
    const Tensor& input, const Tensor& grad, const Tensor& weight,
    const OptionalTensor& running_mean, const OptionalTensor& running_var,
    const OptionalTensor& mean, const OptionalTensor& inverse_deviation, double epsilon,
    const Tensor&) {
  return at::native_batch_norm_backward(grad, input, weight, running_mean, running_var, mean,
                                        inverse_deviation, /*train=*/true, epsilon,
                                        {true, true, true});
}

constexpr std::int64_t k_bilinear = 0, k_zeros = 0;

Tensor cudnn_grid_sampler(const Tensor& input, const Tensor& grid) {
  return at::grid_sampler_2d(input, grid, k_bilinear, k_zeros, /*align_corners=*/true);
}

std::tuple<Tensor, Tensor> cudnn_grid_sampler_backward(const Tensor& input, const Tensor& grid,
                                                       const Tensor& grad) {
  return at::grid_sampler_2d_backward(grad, input, grid, k_bilinear, k_zeros,
                                      /*align_corners=*/true, {true, true});
}

// The weights of a recurrent network become parts of one buffer, one after the other.
Tensor flatten_weights(at::TensorList weights, std::int64_t, std::int64_t, std::int64_t,
                       std::int64_t, std::int64_t, std::int64_t, bool, bool) {
  TORCH_CHECK(!weights.empty(), "_cudnn_rnn_flatten_weight_: cannot flatten empty weight list");
  std::int64_t size = 0, begin = 0;
  for (const Tensor& weight : weights) size += weight.numel();
  Tensor buffer = at::empty(size, weights[0].options());
  for (const Tensor& weight : weights) {
    const Tensor part = buffer.narrow(0, begin, weight.numel()).view_as(weight);
    part.copy_(weight);
    weight.set_(part);
    begin += weight.numel();
  }
  return buffer;
}

}  // namespace

void add_cudnn(torch::Library& library) {
  using torch::CppFunction;
  const auto add = [&](const char* name, auto function) {
    library.impl(name, std::move(function));
    mark_as_computed(name);
  };
  if (settings().dry_run) {  // it counts LibTorch's own kernels instead
    for (const char* name :
         {"cudnn_is_acceptable", "_use_cudnn_ctc_loss", "_use_cudnn_ctc_loss.Tensor"})
      add(name, CppFunction::makeFromBoxedFunction<&accepts_nothing>());
  } else {
    add_recurrent(library);
    add_at_once(library, "_cudnn_ctc_loss", CppFunction(TORCH_FN(cudnn_ctc_loss<at::IntArrayRef>)));
    add_at_once(library, "_cudnn_ctc_loss.Tensor",
                CppFunction(TORCH_FN(cudnn_ctc_loss<const Tensor&>)));
  }
  add("cudnn_convolution", TORCH_FN(cudnn_convolution));
  add("cudnn_convolution_transpose", TORCH_FN(cudnn_convolution_transpose));
  add("cudnn_convolution_relu", TORCH_FN(cudnn_convolution_relu));
  add("cudnn_convolution_add_relu", TORCH_FN(cudnn_convolution_add_relu));
  add("cudnn_batch_norm", TORCH_FN(cudnn_batch_norm));
  add("cudnn_batch_norm_backward", TORCH_FN(cudnn_batch_norm_backward));
  add("cudnn_grid_sampler", TORCH_FN(cudnn_grid_sampler));
  add("cudnn_grid_sampler_backward", TORCH_FN(cudnn_grid_sampler_backward));
  add("_cudnn_rnn_flatten_weight", TORCH_FN(flatten_weights));
}

}  // namespace simulate_gpus
