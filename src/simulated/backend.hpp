// SPDX-License-Identifier: MIT
//
// What the files of the simulated GPUs share. They implement LibTorch's contract for a device of an
// out-of-tree backend ("PrivateUse1"), one piece each:
//
//   devices.cpp    how many there are, which one is current    c10::impl::DeviceGuardImplInterface
//   streams.cpp    what they postpone, and waiting for it      its streams and events
//   memory.cpp     their memory, in the host's                 c10::DeviceAllocator
//   pinned_memory.cpp   what asynchronous copies write to      c10::Allocator
//   hooks.cpp      what generic LibTorch code asks a backend   at::PrivateUse1HooksInterface
//   tensors.cpp    new tensors and views                       aten::empty, as_strided, view ...
//   copies.cpp     every transfer                              aten::_copy_from, item()
//   fallback.cpp   all other operations, done by the CPU       the backend's boxed fallback
//   simulate_gpus.cpp   the public function and the environment variable
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <functional>

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

/// This thread's stream on a device; at first its default stream.
constexpr c10::StreamId k_default_stream = 0;
[[nodiscard]] c10::Stream stream(c10::Device device, c10::StreamId id);
[[nodiscard]] c10::Stream new_stream(c10::Device device);
[[nodiscard]] c10::Stream current_stream(c10::Device device);
void set_current_stream(c10::Stream stream);

/// A place in the work of a stream; what an event records.
struct Moment {
  c10::Stream stream;
  std::uint64_t queued;
};
/// Queues work that is done when somebody waits for it.
void postpone(c10::Stream stream, std::function<void()> work);
[[nodiscard]] Moment now(c10::Stream stream);
[[nodiscard]] bool has_passed(const Moment& moment);
void wait_for(const Moment& moment);
void wait_for_device(c10::DeviceIndex index);

/// Host memory, aligned as LibTorch's CPU kernels expect it; null where there is none.
[[nodiscard]] void* allocate_aligned(std::size_t bytes) noexcept;
[[nodiscard]] c10::DeviceAllocator& allocator() noexcept;
[[nodiscard]] c10::Allocator& pinned_allocator() noexcept;
[[nodiscard]] bool is_pinned(const void* data);

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
 public:
  [[nodiscard]] static bool is_entered() {
    return c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::DeferredInit);
  }

 private:
  c10::impl::ExcludeDispatchKeyGuard no_observer_{c10::DispatchKey::DeferredInit};
  at::DisableRecordFunctionGuard no_profiler_;
};

}  // namespace use_gpu::simulated
