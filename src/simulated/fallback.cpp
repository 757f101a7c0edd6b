// SPDX-License-Identifier: MIT
//
// All operations that are not implemented elsewhere here: LibTorch's boxed CPU fallback computes
// them. It gathers operands from anywhere without a word, so the check that a GPU's kernels make,
// all on one device, is made here first.
#include <ATen/Functions.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/IndexingUtils.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "backend.hpp"

namespace use_gpu::simulated {
namespace {

bool takes_indices(const c10::OperatorHandle& op) {
  const auto& name = op.schema().name();
  return name == "aten::index" || name == "aten::index_put_" || name == "aten::_index_put_impl_";
}

// Indices may be on the CPU; LibTorch's GPU kernels then copy them over, and read back how many
// elements a mask selects, with this same function.
void prepare_indices(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const auto first = stack.size() - op.schema().arguments().size();
  const at::Tensor self = stack[first].toTensor();
  const auto indices = stack[first + 1].toOptionalTensorList();
  for (const auto& index : stack[first + 1].toOptionalTensorVector()) {
    TORCH_CHECK_INDEX(
        !index || !index->defined() || index->is_cpu() || index->device() == self.device(),
        "indices should be either on cpu or on the same device as the indexed tensor (",
        self.device(), ")");
  }
  c10::List<std::optional<at::Tensor>> expanded;
  for (const auto& index : at::native::expandTensors(self, indices, /*ensure_same_device=*/true)) {
    expanded.push_back(index.defined() ? std::optional(index) : std::nullopt);
  }
  stack[first + 1] = std::move(expanded);
}

// The first device of the operands; throws, in LibTorch's words, if another one follows.
std::optional<c10::Device> common_device(const c10::OperatorHandle& op,
                                         c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> common;
  const auto add = [&](const at::Tensor& x) {
    if (!x.defined() || (x.is_cpu() && x.dim() == 0)) return;
    if (!common) common = x.device();
    TORCH_CHECK(
        *common == x.device(), "Expected all tensors to be on the same device, but found at ",
        "least two devices, ", *common, " and ", x.device(), "! (", op.operator_name(), ")");
  };
  for (const auto& argument : arguments) {
    if (argument.isTensor()) add(argument.toTensor());
    if (argument.isTensorList()) {
      for (const at::Tensor& x : argument.toTensorVector()) add(x);
    }
    if (argument.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& x : argument.toOptionalTensorVector()) {
        if (x) add(*x);
      }
    }
  }
  return common;
}

void compute_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::optional<InsideDevice> inside;
  // While it checked the shapes of index, LibTorch has made and shown these transfers already.
  if (op.schema().name() == "aten::index") inside.emplace();
  if (takes_indices(op)) prepare_indices(op, *stack);
  const auto arguments = op.schema().arguments().size();
  const auto common = common_device(op, torch::jit::last(*stack, arguments));
  const c10::DeviceGuard guard(common && common->type() == k_type ? *common : current_device());
  for (auto i = stack->size() - arguments; i < stack->size(); ++i) {
    c10::IValue& argument = (*stack)[i];
    if (argument.isGenerator() && argument.toGenerator().device().type() == k_type) {
      argument = host_generator(argument.toGenerator());
    }
  }
  if (!inside) inside.emplace();
  at::native::cpu_fallback(op, stack);
}

// Convolution asks a backend for these two operations, which the CPU does not have.
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, c10::IntArrayRef stride,
                       c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_padding, std::int64_t groups) {
  const InsideDevice inside;
  const at::Tensor host_bias = bias && bias->defined() ? bias->cpu() : at::Tensor();
  return at::convolution(input.cpu(), weight.cpu(), host_bias, stride, padding, dilation,
                         transposed, output_padding, groups)
      .to(input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
    c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
    c10::IntArrayRef output_padding, std::int64_t groups, std::array<bool, 3> mask) {
  const InsideDevice inside;
  const std::int64_t bias_size = transposed ? weight.size(1) * groups : weight.size(0);
  auto [grad_input, grad_weight, grad_bias] =
      at::convolution_backward(grad.cpu(), input.cpu(), weight.cpu(), c10::IntArrayRef(bias_size),
                               stride, padding, dilation, transposed, output_padding, groups, mask);
  const auto back = [&](const at::Tensor& x) { return x.defined() ? x.to(input.device()) : x; };
  return {back(grad_input), back(grad_weight), back(grad_bias)};
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute_on_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
  // LibTorch's default for these hands their CPU kernels an output of another shape than those
  // want, which they warn about at every call.
  for (const char* loss : {"mse_loss", "smooth_l1_loss"}) {
    m.impl(loss, torch::CppFunction::makeFromBoxedFunction<&compute_on_cpu>());
  }
}

}  // namespace
}  // namespace use_gpu::simulated
