// SPDX-License-Identifier: MIT
//
// The arguments of any operation.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace simulated_cuda {

using Values = std::vector<c10::IValue>;

/// The name without "aten::", and without the last underscore of an operation in place: "add".
std::string_view base_name(const c10::FunctionSchema& schema);

/// Calls visit(tensor) for each tensor of an argument.
void for_each_tensor(const c10::IValue& value, const auto& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const auto& tensor : value.toOptionalTensorVector()) {
      if (tensor) visit(*tensor);
    }
  }
}

/// The value with change(tensor) for each of its tensors.
c10::IValue with_tensors(const c10::IValue& value, const auto& change) {
  if (value.isTensor()) return change(value.toTensor());
  if (value.isTensorList()) {
    std::vector<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(change(tensor));
    return tensors;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const auto& tensor : value.toOptionalTensorVector()) {
      tensors.push_back(tensor ? std::optional(change(*tensor)) : std::nullopt);
    }
    return tensors;
  }
  return value;
}

bool writes_argument(const c10::FunctionSchema& schema, std::size_t index);

/// The argument that is returned as this result, if the operation writes it.
std::optional<std::size_t> returned_argument(const c10::FunctionSchema& schema,
                                             const c10::Argument& result);

/// The device of the operation: of its first CUDA tensor, else the one that it names, else the
/// current one.
c10::Device device_of(const Values& arguments);

/// Throws LibTorch's error for operands on several devices.
void check_devices(const c10::FunctionSchema& schema, const Values& arguments, c10::Device device);

/// The first steps of LibTorch's indexing kernels: copies indices and a value to the device, counts
/// masks.
void prepare_indices(const c10::FunctionSchema& schema, Values& arguments);

}  // namespace simulated_cuda
