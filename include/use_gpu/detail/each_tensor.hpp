// SPDX-License-Identifier: MIT
//
// How batch.hpp, prefetch.hpp and distributed_data_parallel.hpp walk over what holds tensors.
// LibTorch walks over none of these types. Nothing to call.
#pragma once

#include <ATen/core/Tensor.h>
#include <use_gpu/export.hpp>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace torch {
template <typename Key, typename Value>
class OrderedDict;
namespace data {
template <typename Data, typename Target>
struct Example;  // <torch/data/example.h> takes seconds to compile
}
}  // namespace torch

namespace USE_GPU_EXPORT use_gpu {
namespace detail {

template <class, template <class...> class>
inline constexpr bool is_a = false;
template <class... T, template <class...> class Template>
inline constexpr bool is_a<Template<T...>, Template> = true;

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
    all.reserve(x.size());
    for (const auto& element : x) all.push_back(inside(element));
    return all;
  } else if constexpr (is_a<T, std::map>) {
    T all(x.key_comp());
    for (const auto& [key, element] : x) all.emplace_hint(all.end(), key, inside(element));
    return all;
  } else if constexpr (is_a<T, std::unordered_map>) {
    T all(x.bucket_count(), x.hash_function(), x.key_eq());
    for (const auto& [key, element] : x) all.emplace(key, inside(element));
    return all;
  } else if constexpr (is_a<T, torch::OrderedDict>) {
    T all(x.key_description());
    for (const auto& element : x) all.insert(element.key(), inside(element.value()));
    return all;
  } else if constexpr (is_a<T, std::optional>) {
    return x ? T(inside(*x)) : T();
  } else if constexpr (requires { std::tuple_size<T>::value; }) {  // array, pair, tuple
    return std::apply([&](const auto&... element) { return T{inside(element)...}; }, x);
  } else if constexpr (is_a<T, torch::data::Example>) {
    if constexpr (requires { x.target; }) {
      return T{inside(x.data), inside(x.target)};
    } else {
      return T{inside(x.data)};
    }
  } else if constexpr (!is_plain && requires { visit(x); }) {
    return visit(x);
  } else {
    return x;
  }
}

}  // namespace detail
}  // namespace use_gpu
