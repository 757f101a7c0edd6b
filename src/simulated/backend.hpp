// SPDX-License-Identifier: MIT
//
// What the files of the simulated GPUs share. They implement LibTorch's contract for a device of an
// out-of-tree backend ("PrivateUse1"), one piece each:
//
//   devices.cpp    how many there are, which one is current    c10::impl::DeviceGuardImplInterface
//   memory.cpp     their memory, in the host's                 c10::DeviceAllocator
//   hooks.cpp      what generic LibTorch code asks a backend   at::PrivateUse1HooksInterface
//   tensors.cpp    new tensors and views                       aten::empty, as_strided, view ...
//   copies.cpp     every transfer                              aten::_copy_from, _local_scalar_dense
//   fallback.cpp   all other operations, done by the CPU       the backend's boxed fallback
//   simulate_gpus.cpp   the public function and the environment variable
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace use_gpu::simulated {

constexpr c10::DeviceType k_type = c10::DeviceType::PrivateUse1;
constexpr int k_most_devices = 16;

/// 0 until simulate_gpus() says how many.
[[nodiscard]] int device_count() noexcept;
void set_device_count(int count) noexcept;

[[nodiscard]] c10::Device device(int index);
[[nodiscard]] c10::Device current_device() noexcept;
/// Throws for a device that is not there, as a driver would.
void set_current_device(c10::Device device);

[[nodiscard]] c10::DeviceAllocator& allocator() noexcept;

/// Tells LibTorch that the backend is there: its allocator and its hooks.
void register_allocator();
void register_hooks();

/// The CPU generator that draws the random numbers of a simulated GPU's generator.
[[nodiscard]] at::Generator host_generator(const at::Generator& generator);

/// A CPU tensor over the same memory: sizes, strides, conjugate and negative bits included.
[[nodiscard]] at::Tensor host_view(const at::Tensor& x);

/// While it lives, operations are the inside of a device: no profiler sees them, and no observer of
/// transfers (they listen on DeferredInit), as nobody sees what a real GPU does within a kernel.
class InsideDevice {
  c10::impl::ExcludeDispatchKeyGuard no_observer_{c10::DispatchKey::DeferredInit};
  at::DisableRecordFunctionGuard no_profiler_;
};

}  // namespace use_gpu::simulated
