// SPDX-License-Identifier: MIT
//
// The parts of a batch normalization over several GPUs (Python's SyncBatchNorm), which LibTorch has
// only for GPUs. As in its kernels, 16-bit inputs are computed with in float32.
#include <ATen/ATen.h>

#include <optional>
#include <tuple>
#include <vector>

#include "kernels/own_kernels.hpp"
#include "kernels/registration.hpp"

namespace simulate_gpus {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor accurate(const Tensor& x) {
  return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16 ? x.to(at::kFloat) : x;
}

// All dimensions but that of the channels.
std::vector<std::int64_t> others(const Tensor& input) {
  std::vector<std::int64_t> dims{0};
  for (std::int64_t dim = 2; dim < input.dim(); ++dim) dims.push_back(dim);
  return dims;
}

// A value for each channel, to be combined with the input.
Tensor by_channel(const Tensor& values, const Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = -1;
  return accurate(values).view(shape);
}

// -> mean, 1 / deviation
std::tuple<Tensor, Tensor> stats(const Tensor& input, double epsilon) {
  const Tensor x = accurate(input);
  return {x.mean(others(x)), (x.var(others(x), /*unbiased=*/false) + epsilon).rsqrt()};
}

// From those of all GPUs, a row each -> mean, 1 / deviation
std::tuple<Tensor, Tensor> gather_stats(const Tensor&, const Tensor& mean,
                                        const Tensor& inverse_deviation,
                                        const OptionalTensor& running_mean,
                                        const OptionalTensor& running_var, double momentum,
                                        double epsilon, const Tensor& counts) {
  const Tensor count = counts.to(mean.scalar_type()).view({-1, 1});
  const Tensor total = count.sum();
  Tensor all_mean = (mean * count).sum(0) / total;
  const Tensor variances = inverse_deviation.pow(-2) - epsilon + (mean - all_mean).square();
  const Tensor variance = (variances * count).sum(0) / total;
  const auto update = [&](const OptionalTensor& running, const Tensor& value) {
    if (is_given(running)) running->copy_(*running * (1 - momentum) + value * momentum);
  };
  update(running_mean, all_mean);
  update(running_var, variance * total / (total - 1));
  return {all_mean, (variance + epsilon).rsqrt()};
}

std::tuple<Tensor, Tensor> gather_equal_stats(const Tensor& input, const Tensor& mean,
                                              const Tensor& inverse_deviation,
                                              const OptionalTensor& running_mean,
                                              const OptionalTensor& running_var, double momentum,
                                              double epsilon, std::int64_t count) {
  return gather_stats(input, mean, inverse_deviation, running_mean, running_var, momentum, epsilon,
                      at::full({mean.size(0)}, count, mean.options()));
}

Tensor normalize(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                 const Tensor& mean, const Tensor& inverse_deviation, double) {
  Tensor y = (accurate(input) - by_channel(mean, input)) * by_channel(inverse_deviation, input);
  if (is_given(weight)) y = y * by_channel(*weight, input);
  if (is_given(bias)) y = y + by_channel(*bias, input);
  return y.to(input.scalar_type());
}

// -> sum of the gradients, sum of gradient times (input - mean), gradients of weight and bias
std::tuple<Tensor, Tensor, Tensor, Tensor> backward_sums(
    const Tensor& grad, const Tensor& input, const Tensor& mean, const Tensor& inverse_deviation,
    const OptionalTensor& weight, bool of_input, bool of_weight, bool of_bias) {
  const Tensor of_output = accurate(grad);
  Tensor sum = of_output.sum(others(input));
  Tensor product = (of_output * (accurate(input) - by_channel(mean, input))).sum(others(input));
  const auto like_weight = [&](const Tensor& x) {
    return is_given(weight) ? x.to(weight->scalar_type()) : x;
  };
  return {of_input ? sum : Tensor(), of_input ? product : Tensor(),
          of_weight ? like_weight(product * inverse_deviation) : Tensor(),
          of_bias ? like_weight(sum) : Tensor()};
}

// -> gradient of the input
Tensor backward(const Tensor& grad, const Tensor& input, const Tensor& mean,
                const Tensor& inverse_deviation, const OptionalTensor& weight, const Tensor& sum,
                const Tensor& product, const Tensor& counts) {
  const Tensor total = counts.sum();
  const Tensor slope = product / total * inverse_deviation.square();
  Tensor of_input = accurate(grad) - by_channel(sum / total, input) -
                    (accurate(input) - by_channel(mean, input)) * by_channel(slope, input);
  of_input = of_input * by_channel(inverse_deviation, input);
  if (is_given(weight)) of_input = of_input * by_channel(*weight, input);
  return of_input.to(input.scalar_type());
}

}  // namespace

void add_batch_norm(torch::Library& library) {
  const auto add = [&](const char* name, auto function) {
    library.impl(name, function);
    mark_as_computed(name);
  };
  add("batch_norm_stats", TORCH_FN(stats));
  add("batch_norm_gather_stats", TORCH_FN(gather_equal_stats));
  add("batch_norm_gather_stats_with_counts", TORCH_FN(gather_stats));
  add("batch_norm_elemt", TORCH_FN(normalize));
  add("batch_norm_backward_reduce", TORCH_FN(backward_sums));
  add("batch_norm_backward_elemt", TORCH_FN(backward));
}

}  // namespace simulate_gpus
