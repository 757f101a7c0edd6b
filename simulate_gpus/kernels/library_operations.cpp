// SPDX-License-Identifier: MIT
//
// A dry run launches LibTorch's own kernels, which are counted and do nothing. Calls of cuBLAS,
// cuSOLVER, cuFFT and cuDNN bypass the runtime, so these operations are replaced: each counts as
// one kernel and returns a tensor of the right shape.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/ConvUtils.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "kernels/arguments.hpp"
#include "kernels/inside_kernel.hpp"
#include "kernels/library_shapes.hpp"
#include "kernels/operation.hpp"
#include "kernels/own_kernels.hpp"
#include "runtime/interface.hpp"

namespace simulated_cuda {
namespace {

using at::Tensor;

void count_kernel(const std::string& name) {
  cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  C10_CUDA_CHECK(simulated_cuda_begin_operation(stream));
  simulated_cuda_count_operation(stream, name.c_str());
}

// What is small is zeros, so that a solver's "info" reports success.
Tensor zeros(at::IntArrayRef sizes, const at::TensorOptions& options,
             at::OptionalIntArrayRef strides = std::nullopt) {
  Tensor made = strides ? at::empty_strided(sizes, *strides, options) : at::empty(sizes, options);
  if (made.numel() > 0 && simulated_cuda_touches(made.nbytes()))
    std::memset(simulated_cuda_host_address(made.data_ptr()), 0, made.nbytes());
  return made;
}

// "addbmm" of aten::addbmm_.
std::string bare_name(const std::string& name) {
  const std::string base = name.substr(std::string_view("aten::").size());
  return base.ends_with('_') ? base.substr(0, base.size() - 1) : base;
}

// Results as meta tensors, where the operation has no meta kernel; outputs that are arguments get
// their sizes. False if it is not known.
bool add_shapes(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments,
                torch::jit::Stack* results) {
  const auto shapes = shapes_without_meta_kernel(bare_name(schema.name()), arguments);
  for (std::size_t r = 0; r < shapes.size(); ++r) {
    if (const auto argument = returned_argument(schema, schema.returns()[r])) {
      results->push_back(arguments[*argument]);
      results->back().toTensor().resize_(shapes[r].sizes());
    } else {
      results->emplace_back(shapes[r]);
    }
  }
  return !shapes.empty();
}

// The operation's outputs, with shapes from its meta kernel.
void count_with_meta(const c10::OperatorHandle& operation, c10::DispatchKeySet,
                     torch::jit::Stack* stack) {
  const InsideKernel inside;
  const c10::FunctionSchema& schema = operation.schema();
  const auto arguments = torch::jit::pop(*stack, schema.arguments().size());
  std::optional<at::TensorOptions> options;
  torch::jit::Stack metas;
  for (const c10::IValue& argument : arguments) {
    if (!argument.isTensor() || !argument.toTensor().defined()) {
      metas.push_back(argument);
      continue;
    }
    const Tensor& tensor = argument.toTensor();
    if (tensor.is_cuda()) options = tensor.options();
    metas.emplace_back(
        at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta)));
  }
  const torch::jit::Stack kept = metas;
  try {
    operation.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &metas);
  } catch (const c10::NotImplementedError&) {  // no meta kernel
    metas.clear();
    if (!add_shapes(schema, kept, &metas)) {  // use the CPU's
      stack->insert(stack->end(), arguments.begin(), arguments.end());
      compute(operation, c10::DispatchKey::CPU, stack);
      return;
    }
  }
  count_kernel(operation.schema().name());
  for (std::size_t r = 0; r < metas.size(); ++r) {
    const c10::IValue& result = metas[r];
    const auto same = [&](const c10::IValue& other) {
      return other.isTensor() && result.isTensor() && other.is(result);
    };
    const auto given = std::ranges::find_if(kept, same);
    if (given != kept.end()) {  // an argument that is written
      Tensor tensor = arguments[static_cast<std::size_t>(given - kept.begin())].toTensor();
      if (tensor.sizes() != result.toTensor().sizes()) tensor.resize_(result.toTensor().sizes());
      stack->push_back(tensor);
    } else if (result.isTensor() && result.toTensor().defined()) {
      const Tensor& shape = result.toTensor();
      stack->push_back(zeros(shape.sizes(), options->dtype(shape.dtype()), shape.strides()));
    } else {
      stack->push_back(result);
    }
  }
}

Tensor convolution(const Tensor& input, const Tensor& weight, const std::optional<Tensor>&,
                   at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                   bool transposed, at::IntArrayRef output_padding, std::int64_t groups, bool, bool,
                   bool, bool) {
  count_kernel("aten::_convolution");
  const auto rank = input.dim() - 2;
  const auto expanded = [&](at::IntArrayRef values) {
    return values.size() == 1 ? std::vector<std::int64_t>(static_cast<std::size_t>(rank), values[0])
                              : values.vec();
  };
  const auto sizes =
      transposed ? at::native::conv_input_size(input.sizes(), weight.sizes(), expanded(padding),
                                               expanded(output_padding), expanded(stride),
                                               expanded(dilation), groups)
                 : at::native::conv_output_size(input.sizes(), weight.sizes(), expanded(padding),
                                                expanded(stride), expanded(dilation));
  return zeros(sizes, input.options());
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& grad, const Tensor& input,
                                                        const Tensor& weight,
                                                        at::OptionalIntArrayRef bias_sizes,
                                                        at::IntArrayRef, at::IntArrayRef,
                                                        at::IntArrayRef, bool, at::IntArrayRef,
                                                        std::int64_t, std::array<bool, 3> wanted) {
  const auto gradient = [&](bool want, at::IntArrayRef sizes) {
    if (!want) return Tensor();
    count_kernel("aten::convolution_backward");
    return zeros(sizes, grad.options());
  };
  return {gradient(wanted[0], input.sizes()), gradient(wanted[1], weight.sizes()),
          gradient(wanted[2], bias_sizes ? *bias_sizes : at::IntArrayRef{})};
}

bool is_given_to_a_library(const std::string& name) {
  static constexpr std::array k_names = {"_addmm_activation",
                                         "_cholesky_solve_helper",
                                         "_int_mm",
                                         "addbmm",
                                         "addmm",
                                         "addmv",
                                         "baddbmm",
                                         "bmm",
                                         "cholesky",
                                         "cholesky_inverse",
                                         "dot",
                                         "geqrf",
                                         "mm",
                                         "ormqr",
                                         "triangular_solve",
                                         "vdot"};
  const std::string base = bare_name(name);
  return base.starts_with("linalg_") || base.starts_with("_linalg_") || base.starts_with("_fft_") ||
         std::ranges::count(k_names, base) > 0;
}

}  // namespace

void add_library_operations(torch::Library& library) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name :
       dispatcher.getRegistrationsForDispatchKey(c10::DispatchKey::CUDA)) {
    const auto operation = dispatcher.findOp(name);
    if (!name.name.starts_with("aten::") || !is_given_to_a_library(name.name) ||
        !operation->hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) {
      continue;
    }
    const std::string overload = name.overload_name.empty() ? "" : '.' + name.overload_name;
    library.impl((name.name.substr(6) + overload).c_str(),
                 torch::CppFunction::makeFromBoxedFunction<&count_with_meta>());
  }
  library.impl("_convolution", TORCH_FN(convolution));
  library.impl("convolution_backward", TORCH_FN(convolution_backward));
}

}  // namespace simulated_cuda
