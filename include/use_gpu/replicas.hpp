// SPDX-License-Identifier: MIT
//
// The same network on several devices, each trained on its part of the batch: TensorFlow's
// MirroredStrategy, DJL's ParameterStore. LibTorch's own clone() needs a Cloneable, renames the
// children of a Sequential, and resets requires_grad and training mode:
//
//   auto nets = use_gpu::mirror(devices, [] { return torch::nn::Linear(3, 1); });
//   use_gpu::parallel_on(devices, [&](c10::Device device, std::size_t i) {
//     loss(nets[i], batch.chunk(n)[i].to(device)).backward();
//   });
//   use_gpu::average_gradients(nets);                // now equal optimizers take equal steps
//
// The mean of the replicas' gradients equals the whole batch's if each loss is a mean and all parts
// have equal size; for parts of other sizes give average_gradients() their rows. split_batch
// (batch.hpp) makes the parts. After mirror() buffers are separate: BatchNorm's statistics are those
// of each part, until copy_buffers() makes them equal. For several processes: communicator.hpp.
//
// torch::nn::parallel::replicate makes replicas for one forward pass: their gradients flow to the
// original's parameters, and it needs a Cloneable too. These are permanent: each has its own
// parameters, gradients and optimizer.
//
// Threads: each replica may be used by one of its own. Call the functions of this header while no
// other thread uses the replicas.
#pragma once

#include <c10/core/Device.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/module_ref.hpp>

#include <cstdint>
#include <functional>
#include <type_traits>

namespace USE_GPU_EXPORT use_gpu {

namespace detail {
/// mirror(), for networks of any type.
void mirror_modules(const std::vector<c10::Device>& devices,
                    const std::function<ModuleRef()>& make);
/// average_gradients(), for networks of any type.
void average_gradients_of(const std::vector<ModuleRef>& replicas,
                          const std::vector<std::int64_t>& rows);
/// copy_buffers(), for networks of any type.
void copy_buffers_of(const std::vector<ModuleRef>& replicas, int from);
}  // namespace detail

/// Calls make() once for each device, in order, and puts the module holder or pointer that it
/// returns on that device, as place() does. Then copies to all networks the first one's parameters
/// and buffers (tied ones stay tied), requires_grad, and training mode of each submodule. A device
/// may appear several times. make() runs outside of inference mode, with the caller's other modes
/// and scopes. Many small tensors travel together, from device to device directly.
///
/// Waits: for what comes from the host.
///
/// Throws: before anything moves: ArgumentError if there are no devices or make() returns an empty
/// handle or the same module twice; DeviceError if a device is not there; ParameterError, with all
/// reasons in differences(), if names, shapes or dtypes differ from the first network's, or tensors
/// have no plain values (sparse, quantized, meta).
///
/// Chapter: `strategy.scope()` of the TensorFlow edition.
template <class Make>
requires ModuleHandle<std::invoke_result_t<Make&>>
[[nodiscard]] auto mirror(const std::vector<c10::Device>& devices, Make make)
    -> std::vector<std::invoke_result_t<Make&>> {
  std::vector<std::invoke_result_t<Make&>> replicas;
  detail::mirror_modules(devices, [&]() -> ModuleRef { return replicas.emplace_back(make()); });
  return replicas;
}

/// To be called after a backward pass on each replica: replaces each gradient by its mean over the
/// replicas, in place; the results are bit-identical on all of them. A gradient that is undefined
/// on some replicas counts as zeros there, and is defined afterwards; one that is undefined on all
/// stays undefined. Frozen parameters (requires_grad is false) and buffers are left alone; tied
/// parameters count once; inf and nan are kept. Half and bfloat16 are summed in float32.
///
/// Adds the gradients in the replicas' order. The gradients of two replicas are added on the first
/// one's device. With more replicas each device adds an equal part of the gradients, all at the
/// same time. Uses few large transfers, on the current streams. Needs memory for a second copy of
/// the gradients on each device, for large ones in half precision in float32.
///
/// Waits: only for copies from and to the CPU.
///
/// Throws: before anything changes: ArgumentError if there are no replicas, an empty one or a
/// duplicate; DeviceMismatch if one is on several devices; ParameterError, with all reasons in
/// differences(), if parameters differ in name, shape, dtype or requires_grad, or a gradient is
/// sparse. If memory runs out before the first write, nothing has changed either. For a write that
/// a device refuses LibTorch's error passes: the gradients on that device are then unspecified.
template <ModuleHandle Net>
void average_gradients(const std::vector<Net>& replicas) {
  detail::average_gradients_of({replicas.begin(), replicas.end()},
                               std::vector<std::int64_t>(replicas.size(), 1));
}

/// The same, but weighted by the rows of each replica's part of the batch: if each loss is the mean
/// over a part's rows, the result is the gradient of the mean over all rows. A part of 0 rows
/// counts nothing; its gradients may even be nan. (BatchNorm in training mode refuses a part of one
/// row where it has one value for each channel: LibTorch's error.)
///
/// Throws: as above, and ArgumentError, before anything changes, for another number of rows than
/// replicas, a negative number, and where all are 0.
template <ModuleHandle Net>
void average_gradients(const std::vector<Net>& replicas, const std::vector<std::int64_t>& rows) {
  detail::average_gradients_of({replicas.begin(), replicas.end()}, rows);
}

/// Copies the buffers of one replica to all others, in place and in few large transfers: BatchNorm's
/// statistics, which each replica gathers from its own part of the batches, drift apart otherwise. As
/// Python's DistributedDataParallel with broadcast_buffers does it, call it before each step, or once
/// before what evaluates or saves a replica.
///
/// Waits: only for copies from and to the CPU.
///
/// Throws: before anything is written: ArgumentError if there are no replicas, an empty one or a
/// duplicate, or no replica `from`; ParameterError, with all reasons in differences(), if buffers
/// differ in name, shape or dtype, or have no plain values.
template <ModuleHandle Net>
void copy_buffers(const std::vector<Net>& replicas, int from = 0) {
  detail::copy_buffers_of({replicas.begin(), replicas.end()}, from);
}

}  // namespace use_gpu
