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
#include <vector>

#include "kernels/arguments.hpp"
#include "kernels/compute.hpp"
#include "kernels/convolutions.hpp"
#include "kernels/inside_kernel.hpp"
#include "kernels/library_shapes.hpp"
#include "kernels/operand_checks.hpp"
#include "kernels/own_kernels.hpp"
#include "kernels/rehearsal.hpp"
#include "runtime/interface.hpp"
#include "runtime/settings.hpp"

namespace simulate_gpus {
namespace {

using at::Tensor;

void count_kernel(const std::string& name) {
  cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  C10_CUDA_CHECK(begin_operation(stream));
  tell_operation(stream, name);
}

// What is small is zeros, so that a solver's "info" reports success.
Tensor zeros(at::IntArrayRef sizes, const at::TensorOptions& options,
             at::OptionalIntArrayRef strides = std::nullopt) {
  Tensor made = strides ? at::empty_strided(sizes, *strides, options) : at::empty(sizes, options);
  if (made.numel() > 0 && touches(made.nbytes()))
    std::memset(host_address(made.data_ptr()), 0, made.nbytes());
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
void count_with_meta(const c10::OperatorHandle& operation, const Values& arguments,
                     torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = operation.schema();
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
      compute(Operation::of(operation), stack);
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

std::vector<std::int64_t> numbers_of(const c10::IValue& value, std::int64_t rank) {
  auto numbers = value.toIntVector();
  if (numbers.size() == 1) numbers.resize(static_cast<std::size_t>(rank), numbers[0]);
  return numbers;
}

void convolution(const c10::OperatorHandle& operation, const Values& arguments,
                 torch::jit::Stack* stack) {
  count_kernel(operation.schema().name());
  const Tensor input = arguments[0].toTensor(), weight = arguments[1].toTensor();
  const auto numbers = [&](std::size_t index) {
    return numbers_of(arguments[index], input.dim() - 2);
  };
  const auto stride = numbers(3), padding = numbers(4), dilation = numbers(5);
  const bool transposed = arguments[6].toBool();
  const std::int64_t groups = arguments[8].toInt();
  const auto sizes =
      transposed
          ? at::native::conv_input_size(input.sizes(), weight.sizes(), padding, numbers(7), stride,
                                        dilation, groups)
          : at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
  const auto layout = layout_of_convolution(arguments, /*is_backward=*/false);
  stack->emplace_back(zeros(sizes, input.options().memory_format(layout)));
}

void convolution_backward(const c10::OperatorHandle& operation, const Values& arguments,
                          torch::jit::Stack* stack) {
  const Tensor grad = arguments[0].toTensor();
  const auto wanted = arguments.back().toBoolList();
  const auto layout = layout_of_convolution(arguments, /*is_backward=*/true);
  const auto gradient = [&](std::size_t index, at::IntArrayRef sizes, at::MemoryFormat format) {
    if (wanted[index]) count_kernel(operation.schema().name());
    stack->emplace_back(wanted[index] ? zeros(sizes, grad.options().memory_format(format))
                                      : Tensor());
  };
  gradient(0, arguments[1].toTensor().sizes(), layout);
  gradient(1, arguments[2].toTensor().sizes(), layout);
  gradient(2, arguments[3].isNone() ? std::vector<std::int64_t>() : arguments[3].toIntVector(),
           at::MemoryFormat::Contiguous);
}

void scaled_product(const c10::OperatorHandle& operation, const Values& arguments,
                    torch::jit::Stack* stack) {
  count_kernel(operation.schema().name());
  const Tensor a = arguments[0].toTensor(), b = arguments[1].toTensor();
  const auto place = *operation.schema().argumentIndexWithName("out_dtype");
  const c10::IValue& dtype = arguments[static_cast<std::size_t>(place)];
  const auto options = a.options().dtype(dtype.isNone() ? a.scalar_type() : dtype.toScalarType());
  stack->emplace_back(zeros({a.size(0), b.size(1)}, options));
}

// Counts in place of the kernel, for operands that it takes.
template <auto count>
void counted(const c10::OperatorHandle& operation, c10::DispatchKeySet, torch::jit::Stack* stack) {
  if (rehearses()) return call_kept_kernel(operation, c10::DispatchKey::CPU, stack);
  const auto arguments = torch::jit::pop(*stack, operation.schema().arguments().size());
  check_library_operands(Operation::of(operation), arguments);
  const InsideKernel inside;
  count(operation, arguments, stack);
}

template <auto count>
void count_instead(torch::Library& library, const c10::OperatorHandle& operation) {
  keep_kernel(operation, c10::DispatchKey::CUDA, c10::DispatchKey::CPU);
  library.impl(toString(operation.operator_name()).c_str(),
               torch::CppFunction::makeFromBoxedFunction<&counted<count>>());
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
    count_instead<&count_with_meta>(library, *operation);
  }
  const auto operation = [&](const char* name) { return dispatcher.findSchemaOrThrow(name, ""); };
  count_instead<&convolution>(library, operation("aten::_convolution"));
  count_instead<&convolution_backward>(library, operation("aten::convolution_backward"));
  for (const char* name : {"aten::_scaled_mm", "aten::_scaled_mm_v2"})
    count_instead<&scaled_product>(library, operation(name));
}

}  // namespace simulate_gpus
