// SPDX-License-Identifier: MIT
//
// What batch.hpp and prefetch.hpp do with each tensor of a batch. Nothing to call.
#pragma once

#include <ATen/core/Tensor.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/export.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
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

/// The rows of a batch's tensors, counted to divide them.
class RowCounter {
 public:
  /// ArgumentError if x has another number of rows than those before, or no dimension 0.
  at::Tensor operator()(const at::Tensor& x);
  template <class T>
  T operator()(const T&) {
    static_assert(std::is_void_v<T>,
                  "use_gpu::split_batch: this type holds no tensors that are known");
  }

  /// ArgumentError if there are no parts, or there was no tensor.
  void check(std::size_t parts) const;

  /// The rows of x in this one of so many parts: a view.
  static at::Tensor part_of(const at::Tensor& x, std::size_t part, std::size_t parts);

 private:
  std::optional<std::int64_t> rows_;
};

}  // namespace detail

}  // namespace use_gpu
