// SPDX-License-Identifier: MIT
#include "kernels/convolutions.hpp"

#include <ATen/ATen.h>
#include <ATen/native/ConvUtils.h>

#include <cstddef>
#include <optional>

namespace simulate_gpus {
namespace {

// A tensor of a GPU that has no memory.
at::Tensor outline(const at::Tensor& of) {
  if (!of.defined()) return of;
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      c10::DispatchKeySet(c10::DispatchKey::CUDA), of.dtype(), c10::Device(c10::kCUDA, 0));
  made.unsafeGetTensorImpl()->set_sizes_and_strides(of.sizes(), of.strides());
  return made;
}

}  // namespace

// input, weight, bias, stride, padding, dilation, is_transposed, output_padding, groups; a backward pass has the gradient
// before them, and the bias's sizes for the bias.
at::MemoryFormat layout_of_convolution(const Values& arguments, bool is_backward) {
  const std::size_t first = is_backward ? 1 : 0;
  const at::Tensor& given = arguments[first].toTensor();
  if (given.dim() == 3) return at::MemoryFormat::Contiguous;
  const at::Tensor input = outline(given), weight = outline(arguments[first + 1].toTensor());
  const c10::IValue& bias = arguments[first + 2];
  const auto numbers = [&](std::size_t i) { return arguments[first + i].toDimVector(); };
  const auto stride = numbers(3), padding = numbers(4), dilation = numbers(5), added = numbers(7);
  std::optional<at::Tensor> bias_tensor;
  std::optional<at::DimVector> bias_sizes;
  if (bias.isTensor() && bias.toTensor().defined()) bias_tensor = outline(bias.toTensor());
  if (bias.isIntList()) bias_sizes = bias.toDimVector();
  const auto symbols = [](const at::DimVector& of) { return c10::fromIntArrayRefSlow(of); };
  const auto backend = at::native::select_conv_backend(
      input, weight, bias_tensor, symbols(stride), symbols(padding), symbols(dilation),
      arguments[first + 6].toBool(), symbols(added), arguments[first + 8].toInt(),
      bias_sizes ? at::OptionalSymIntArrayRef(symbols(*bias_sizes)) : std::nullopt);
  return at::native::_determine_backend_memory_format(input, weight, backend);
}

}  // namespace simulate_gpus
