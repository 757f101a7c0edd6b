// SPDX-License-Identifier: MIT
//
// The same network on several devices, each trained on its part of the batch: TensorFlow's
// MirroredStrategy, DJL's ParameterStore. LibTorch's own clone() needs a Cloneable, renames the
// children of a Sequential, and resets requires_grad and training mode:
//
//   auto nets = use_gpu::mirror(devices, [] { return torch::nn::Linear(3, 1); });
//   use_gpu::parallel_on(devices, [&](c10::Device device, int i) {
//     loss(nets[i], batch.chunk(n)[i].to(device)).backward();
//   });
//   use_gpu::average_gradients(nets);                // now equal optimizers take equal steps
//
// The mean of the replicas' gradients is the whole batch's where each loss is a mean over parts of
// equal size. Buffers are each replica's own after mirror(): the statistics of BatchNorm are those
// of its part. Between several processes: communicator.hpp.
//
// torch::nn::parallel::replicate makes replicas for one forward pass: the gradients of their
// parameters flow to the original's, and it needs a Cloneable too. These stay: each has parameters,
// gradients and an optimizer of its own.
//
// The replicas may be used by a thread each; mirror() and average_gradients() by one thread, while no
// other uses them.
#pragma once

#include <c10/core/Device.h>
#include <use_gpu/export.hpp>
#include <use_gpu/module_ref.hpp>

#include <concepts>
#include <functional>
#include <type_traits>
#include <vector>

namespace USE_GPU_EXPORT use_gpu {

/// What refers to a module: a holder or a pointer, not a module itself, whose copies would share
/// their parameters.
template <class Net>
concept ModuleHandle = std::convertible_to<const Net&, ModuleRef>;

namespace detail {
/// mirror(), for networks of any type.
void mirror_modules(const std::vector<c10::Device>& devices,
                    const std::function<ModuleRef()>& make);
/// average_gradients(), for networks of any type.
void average_gradients_of(const std::vector<ModuleRef>& replicas);
}  // namespace detail

/// Calls make() once for each device, in their order, and puts what it returned, a module holder or
/// pointer, on that device, as place() does. Then gives all of them the first one's parameters and
/// buffers, tied ones tied, requires_grad, and the training mode of each submodule. A device may
/// appear several times. make() is called outside of inference mode, else with the caller's modes
/// and scopes. Many small tensors travel together, through host memory.
///
/// ArgumentError if there are no devices or make() returns an empty handle or the same module
/// twice, DeviceError if a device is not there, ParameterError, whose differences() names them all,
/// if the networks have other names, shapes or dtypes than the first, or tensors without plain
/// values (sparse, quantized, meta): all before anything is moved.
template <class Make>
requires ModuleHandle<std::invoke_result_t<Make&>>
[[nodiscard]] auto mirror(const std::vector<c10::Device>& devices, Make make)
    -> std::vector<std::invoke_result_t<Make&>> {
  std::vector<std::invoke_result_t<Make&>> replicas;
  detail::mirror_modules(devices, [&]() -> ModuleRef { return replicas.emplace_back(make()); });
  return replicas;
}

/// To be called after a backward pass on each replica: writes the mean of the replicas' gradients
/// over each of them, in place, bit for bit equal. A gradient that is undefined on some replicas
/// counts as zeros and is defined afterwards; one that is undefined on all stays so. Frozen
/// parameters (requires_grad is false) and buffers are left alone; tied parameters count once; inf
/// and nan travel as they are. Half and bfloat16 are summed in float32.
///
/// Adds the replicas in their order on the first one's device: few large transfers, queued on the
/// current streams; waits only for those from and to the CPU. Needs the memory of the gradients
/// once more on each device.
///
/// Nothing has changed after an error: ArgumentError if there are no replicas, an empty one or one
/// twice, DeviceMismatch for one on several devices, ParameterError, whose differences() names them
/// all, for parameters that differ in name, shape, dtype or requires_grad, and sparse gradients.
template <ModuleHandle Net>
void average_gradients(const std::vector<Net>& replicas) {
  detail::average_gradients_of({replicas.begin(), replicas.end()});
}

}  // namespace use_gpu
