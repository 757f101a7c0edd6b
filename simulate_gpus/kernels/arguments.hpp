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

namespace simulate_gpus {

using Values = std::vector<c10::IValue>;

/// Whether it lies in memory by its sizes and strides alone: layout() and is_nested() in one look.
inline bool is_strided(const at::Tensor& tensor) {
  constexpr auto k_others = c10::sparse_ks | c10::sparse_csr_ks | c10::mkldnn_ks |
                            c10::DispatchKeySet(c10::DispatchKey::NestedTensor);
  return !tensor.key_set().has_any(k_others);
}

/// a == b, which calls memcmp: of few dimensions that takes longer.
inline bool are_equal(at::IntArrayRef a, at::IntArrayRef b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) return false;
  return true;
}

/// The name without "aten::", and without the last underscore of an operation in place: "add".
std::string_view base_name(const c10::FunctionSchema& schema);

/// Whether it is a list of tensors and gaps, as x[i, :, j] gives its indices. TorchScript's lists have a type of their own.
bool is_list_of_optional_tensors(const c10::IValue& value);

/// Calls visit(tensor) for each tensor of an argument.
void for_each_tensor(const c10::IValue& value, const auto& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const c10::IValue& tensor : value.toListRef()) visit(tensor.toTensor());
  } else if (is_list_of_optional_tensors(value)) {
    for (const c10::IValue& tensor : value.toListRef()) {
      if (tensor.isTensor()) visit(tensor.toTensor());
    }
  }
}

/// Calls visit(tensor, other) for each tensor of an argument and its counterpart in another one.
void for_each_pair(const c10::IValue& value, const c10::IValue& others, const auto& visit) {
  std::vector<at::Tensor> counterparts;
  for_each_tensor(others, [&](const at::Tensor& other) { counterparts.push_back(other); });
  std::size_t next = 0;
  for_each_tensor(value, [&](const at::Tensor& tensor) { visit(tensor, counterparts[next++]); });
}

/// The value with change(tensor) for each of its tensors.
c10::IValue with_tensors(const c10::IValue& value, const auto& change) {
  if (value.isTensor()) return change(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> tensors;
    tensors.reserve(value.toListRef().size());
    for (const c10::IValue& tensor : value.toListRef())
      tensors.push_back(change(tensor.toTensor()));
    return tensors;
  }
  if (is_list_of_optional_tensors(value)) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const c10::IValue& tensor : value.toListRef()) {
      tensors.push_back(tensor.isTensor() ? std::optional(change(tensor.toTensor()))
                                          : std::nullopt);
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
void check_devices(const Values& arguments, c10::Device device);

/// Whether the CUDA kernel takes some tensors from other devices: indices, lengths.
bool takes_other_devices(const c10::FunctionSchema& schema);

bool is_index_operation(const c10::FunctionSchema& schema);

/// The first steps of LibTorch's indexing kernels: copies indices and a value to the device, counts
/// masks.
void prepare_indices(Values& arguments);

}  // namespace simulate_gpus
