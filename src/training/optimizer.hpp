// SPDX-License-Identifier: MIT
//
// What LibTorch's optimizers keep, by name: each has its own type of state and of options, and
// nothing that walks over them but serialize(), into an archive that cannot be read without a file.
#pragma once

#include <torch/optim/optimizer.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

namespace use_gpu::detail {

/// Numbers, texts and tensors as the one kind of thing that a training file holds: tensors. A number
/// has no dimensions, a text is bytes, an undefined tensor says that there is none.
template <class T>
at::Tensor to_value(const T& x) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return x;
  } else if constexpr (std::is_same_v<T, std::string>) {  // from_blob takes a non-const pointer
    return at::from_blob(const_cast<char*>(x.data()), {std::ssize(x)}, at::kByte).clone();
  } else if constexpr (requires { x.has_value(); }) {
    return x ? to_value(*x) : at::Tensor();
  } else {
    return at::scalar_tensor(x, at::device(at::kCPU).dtype<T>());
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

/// A member of a state, or of options, which it refers to, as tensors.
struct Field {
  template <class T>
  Field(const char* its_name, T& x, bool is_optional = false)
      : name(its_name),
        is_on_device(std::is_same_v<T, at::Tensor>),
        may_be_absent(is_optional || requires { x.has_value(); }),
        get([&x] { return std::vector(to_value(x).defined() ? 1 : 0, to_value(x)); }),
        set([&x](const auto& values) {
          return from_value(values.empty() ? at::Tensor() : values.front(), x);
        }) {}
  Field(const char* its_name, std::deque<at::Tensor>& x)
      : name(its_name),
        is_on_device(true),
        is_list(true),
        may_be_absent(true),
        get([&x] { return std::vector(x.begin(), x.end()); }),
        set([&x](const auto& values) {
          x.assign(values.begin(), values.end());
          return true;
        }) {}

  const char* name;
  bool is_on_device;  // a tensor where the parameter is, or several
  bool is_list = false;
  bool may_be_absent = false;
  std::function<std::vector<at::Tensor>()> get;             // none where there is none
  std::function<bool(const std::vector<at::Tensor>&)> set;  // false for another type
};
using Fields = std::vector<Field>;

struct OptimizerKind {
  const char* name;
  const std::type_info& type;
  std::unique_ptr<torch::optim::OptimizerParamState> (*make_state)();
  /// Of a parameter, and of a group; those of an optimizer of this kind.
  Fields (*state)(torch::optim::OptimizerParamState& state);
  Fields (*options)(torch::optim::OptimizerOptions& options);
};

/// How the names of a group's options begin in a training file.
[[nodiscard]] std::string start_of(std::size_t group);

/// Calls visit(p, how the names of its fields begin) for each parameter, once.
void each_parameter(const torch::optim::Optimizer& optimizer,
                    const std::function<void(const at::Tensor&, const std::string&)>& visit);

/// Of a parameter's state; none where it has none, as before the first step.
[[nodiscard]] Fields fields_of(const torch::optim::Optimizer& optimizer, const OptimizerKind& kind,
                               const at::Tensor& p);

/// ArgumentError, which begins with `function`, for an optimizer that is not LibTorch's.
[[nodiscard]] const OptimizerKind& kind_of(const torch::optim::Optimizer& optimizer,
                                           const char* function);

}  // namespace use_gpu::detail
