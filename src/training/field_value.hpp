// SPDX-License-Identifier: MIT
//
// Numbers, texts and tensors as the one kind of thing that a training file holds: tensors. A number
// has no dimensions, a text is bytes, an undefined tensor says that there is none.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/scalar_tensor.h>

#include <string>
#include <type_traits>

namespace use_gpu::detail {

template <class T>
at::Tensor to_value(const T& x) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return x;
  } else if constexpr (std::is_same_v<T, std::string>) {  // from_blob takes a non-const pointer
    return at::from_blob(const_cast<char*>(x.data()), {std::ssize(x)}, at::kByte).clone();
  } else if constexpr (requires { x.has_value(); }) {
    return x ? to_value(*x) : at::Tensor();
  } else {
    constexpr auto dtype = c10::CppTypeToScalarType<T>::value;
    return at::scalar_tensor(x, at::device(at::kCPU).dtype(dtype));
  }
}

/// The reverse; false, and x is as it was, for a value that is none of x's type.
template <class T>
bool from_value(const at::Tensor& value, T& x) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    x = value;
  } else if constexpr (requires { x.has_value(); }) {
    if (value.defined()) return from_value(value, x ? *x : x.emplace());
    x.reset();
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!value.defined() || value.dim() != 1 || value.scalar_type() != at::kByte) return false;
    x.assign(static_cast<const char*>(value.const_data_ptr()), value.nbytes());
  } else {
    constexpr auto dtype = c10::CppTypeToScalarType<T>::value;
    if (!value.defined() || value.dim() != 0 || value.scalar_type() != dtype) return false;
    x = value.template item<T>();
  }
  return true;
}

}  // namespace use_gpu::detail
