// SPDX-License-Identifier: MIT
//
// How batch.hpp, prefetch.hpp and distributed_data_parallel.hpp walk over what holds tensors, and what
// the first two do with each. LibTorch walks over none of these types. Nothing to call.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>
#include <use_gpu/errors.hpp>

#include <concepts>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace torch::data {
template <typename Data, typename Target>
struct Example;  // <torch/data/example.h> takes seconds to compile
}

namespace use_gpu::detail {

template <class T, template <class...> class Template>
inline constexpr bool is_a = c10::guts::is_instantiation_of<Template, T>::value;

/// x, with visit(tensor) in place of each defined tensor in it, and visit(value) in place of what is of
/// no type that is known here, if visit takes it.
template <class T, class Visit>
T with_each_tensor(const T& x, Visit&& visit) {
  constexpr bool is_plain =
      std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>;
  const auto inside = [&](const auto& element) { return with_each_tensor(element, visit); };
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return x.defined() ? visit(x) : x;
  } else if constexpr (is_a<T, std::vector>) {
    T all;
    for (const auto& element : x) all.push_back(inside(element));
    return all;
  } else if constexpr (is_a<T, std::map> || is_a<T, std::unordered_map>) {
    T all(x);
    for (auto& [key, element] : all) element = inside(element);
    return all;
  } else if constexpr (is_a<T, torch::OrderedDict>) {
    T all(x.key_description());
    for (const auto& element : x) all.insert(element.key(), inside(element.value()));
    return all;
  } else if constexpr (is_a<T, std::optional>) {
    return x ? T(inside(*x)) : T();
  } else if constexpr (requires { std::tuple_size<T>::value; }) {  // array, pair, tuple
    return std::apply([&](const auto&... element) { return T{inside(element)...}; }, x);
  } else if constexpr (is_a<T, torch::data::Example> && requires { x.target; }) {
    return T{inside(x.data), inside(x.target)};
  } else if constexpr (is_a<T, torch::data::Example>) {
    return T{inside(x.data)};
  } else if constexpr (!is_plain && requires { visit(x); }) {
    return visit(x);
  } else {
    return x;
  }
}

// Calls the overload of the type's own namespace, if there is one: ours are hidden here.
namespace own_overload {
void to_device() = delete;
template <class T>
T call(const T& x, c10::Device device) requires std::same_as<decltype(to_device(x, device)), T> {
  return to_device(x, device);
}
}  // namespace own_overload

/// Moves the tensors of one batch, each once, by move(x), and what has an overload of its own.
template <class Move>
struct BatchMover {
  c10::Device device;
  Move move;
  std::unordered_map<at::TensorImpl*, at::Tensor> moved = {};

  at::Tensor operator()(const at::Tensor& x) {
    auto& there = moved[x.unsafeGetTensorImpl()];
    if (!there.defined()) there = move(x);
    return there;
  }
  template <class T>
  T operator()(const T& x) {
    static_assert(
        requires { own_overload::call(x, device); },
        "use_gpu::to_device: this type holds no tensors that are known; give its "
        "namespace T to_device(const T&, c10::Device)");
    return own_overload::call(x, device);
  }
};

/// ArgumentError unless there are parts, and tensors, of as many rows each.
USE_GPU_EXPORT void check_divisible(at::TensorList tensors, std::size_t parts);

}  // namespace use_gpu::detail
