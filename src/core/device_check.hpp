// SPDX-License-Identifier: MIT
//
// Which devices there are, also when the program is ending; and events that end well then.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <memory>

namespace use_gpu::detail {

/// The CPU and "meta": there is always exactly one of each, so an index has no meaning.
[[nodiscard]] bool is_always_there(c10::Device device);

/// Whether the main thread has called exit(), or returned from main(). LibTorch's own objects may then
/// be destroyed already: destructors must keep what only LibTorch can free, and no GPU can be used.
/// Does not see that another thread has called exit(). The main thread may have ended alone, by
/// pthread_exit(): the others go on.
[[nodiscard]] bool is_exiting() noexcept;

/// How many devices of that type this program can use; 0 for one that cannot be counted, and when
/// the program is ending.
[[nodiscard]] int count_devices(c10::DeviceType type) noexcept;

/// The device with its index filled in: "cuda" becomes the current cuda device, "cpu:0" the CPU.
[[nodiscard]] c10::Device with_index(c10::Device device);

/// with_index(device), or DeviceError with the device, what exists, and the call that falls back.
[[nodiscard]] c10::Device present_device(c10::Device device);

/// Destroys an event without throwing, while its device is the current one: else CUDA would make a context on the
/// current device. Where that fails, it keeps the event.
struct EventDeleter {
  void operator()(c10::Event* event) const noexcept;
};
using EventPointer = std::unique_ptr<c10::Event, EventDeleter>;

}  // namespace use_gpu::detail
