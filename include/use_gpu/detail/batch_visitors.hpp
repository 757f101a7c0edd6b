// SPDX-License-Identifier: MIT
//
// What batch.hpp and prefetch.hpp do with each tensor of a batch. Nothing to call.
#pragma once

#include <ATen/core/Tensor.h>
#include <use_gpu/errors.hpp>

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <unordered_map>

namespace USE_GPU_EXPORT use_gpu {
namespace detail {

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

/// The tensors of a batch.
struct BatchTensors {
  std::vector<at::Tensor> all = {};

  at::Tensor operator()(const at::Tensor& x) { return all.emplace_back(x); }
  template <class T>
  T operator()(const T&) {
    static_assert(std::is_void_v<T>,
                  "use_gpu::split_batch: this type holds no tensors that are known");
  }
};

/// ArgumentError unless there are parts, and tensors, of as many rows each.
void check_divisible(at::TensorList tensors, std::size_t parts);

}  // namespace detail

}  // namespace use_gpu
