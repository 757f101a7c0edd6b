// SPDX-License-Identifier: MIT
//
// Moves whatever holds tensors: a batch of a data loader, the inputs of a network by name, nested
// as you like. LibTorch moves tensors and modules only, so each training loop writes this by hand.
//
//   for (auto& host_batch : *loader) {
//     const auto batch = use_gpu::to_device(host_batch, device);    // torch::data::Example<>
//     loss = criterion(net->forward(batch.data), batch.target);
//   }
//   const auto parts = use_gpu::split_batch(host_batch, devices);      // for data parallelism
//
// Taken is what each_tensor.hpp lists, nested as you like. Everything else does not compile. For
// to_device a type of your own may be nested too, if its namespace has an overload of
// to_device(const Mine&, c10::Device).
#pragma once

#include <use_gpu/each_tensor.hpp>
#include <use_gpu/tensor.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <vector>

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

/// The batch with all its tensors on that device, each as by to_device(x, device): the same tensor
/// if it is there, otherwise one copy, which autograd records. A tensor that occurs twice is moved
/// once. Numbers, enums and strings are copied; undefined tensors stay undefined.
///
/// Waits: for copies from or to the CPU.
///
/// Throws: DeviceError if the device is not there.
///
/// Threads: several may move one batch at once.
template <class Batch>
[[nodiscard]] Batch to_device(const Batch& batch, c10::Device device) {
  const auto move = [&](const at::Tensor& x) { return to_device(x, device); };
  return detail::with_each_tensor(batch, detail::BatchMover<decltype(move)>{device, move});
}

/// One part of the batch for each device, on that device, as by to_device: each tensor is divided
/// along dimension 0 as by at::tensor_split, in parts whose sizes differ by at most one, empty where
/// there are fewer rows than devices. Numbers, enums and strings are copied to each part. A part that
/// stays where the batch is shares its memory.
///
/// Waits: for what comes from pageable host memory.
///
/// Throws: ArgumentError if there are no devices or no tensors, if the tensors differ in size(0) or
/// one has no dimension; DeviceError if a device is not there.
///
/// Chapter: split_batch of "Training on Multiple GPUs".
template <class Batch>
[[nodiscard]] std::vector<Batch> split_batch(const Batch& batch,
                                             const std::vector<c10::Device>& devices) {
  detail::RowCounter rows;
  static_cast<void>(detail::with_each_tensor(batch, rows));
  rows.check(devices.size());
  std::vector<Batch> parts;
  for (const auto device : devices) {
    const auto move = [&](const at::Tensor& x) {
      return to_device(detail::RowCounter::part_of(x, parts.size(), devices.size()), device);
    };
    parts.push_back(
        detail::with_each_tensor(batch, detail::BatchMover<decltype(move)>{device, move}));
  }
  return parts;
}

}  // namespace use_gpu
