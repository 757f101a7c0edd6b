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
// A batch is made of std::vector, array, map, unordered_map, pair, tuple and optional,
// torch::OrderedDict and torch::data::Example, nested as you like. Everything else does not compile.
// For to_device a type of your own may be nested too, if its namespace has an overload of
// to_device(const Mine&, c10::Device).
#pragma once

#include <use_gpu/detail/each_tensor.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/tensor.hpp>

namespace USE_GPU_EXPORT use_gpu {
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
  std::vector<at::Tensor> tensors;
  static_cast<void>(detail::with_each_tensor(batch, [&]<class T>(const T& x) -> T {
    static_assert(std::same_as<T, at::Tensor>,
                  "use_gpu::split_batch: this type holds no tensors that are known");
    return tensors.emplace_back(x);
  }));
  detail::check_divisible(tensors, devices.size());
  std::vector<Batch> parts;
  for (const auto device : devices) {
    const auto move = [&](const at::Tensor& x) {
      return to_device(x.tensor_split(std::ssize(devices))[parts.size()], device);
    };
    parts.push_back(
        detail::with_each_tensor(batch, detail::BatchMover<decltype(move)>{device, move}));
  }
  return parts;
}

}  // namespace use_gpu
