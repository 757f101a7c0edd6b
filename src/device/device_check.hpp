// SPDX-License-Identifier: MIT
//
// Resolves a device's index and checks that the device exists.
#pragma once

#include <c10/core/Device.h>

namespace use_gpu::detail {

/// The CPU and "meta": there is always exactly one of each, so an index has no meaning.
[[nodiscard]] bool is_always_there(c10::Device device);

/// Whether the main thread has called exit(), or has ended. LibTorch's own objects may then be
/// destroyed already: destructors must keep what only LibTorch can free, and no GPU can be used. Does
/// not see that another thread has called exit().
[[nodiscard]] bool is_exiting() noexcept;

/// How many devices of that type this program can use; 0 for one that cannot be counted, and when
/// the program is ending.
[[nodiscard]] int count_devices(c10::DeviceType type) noexcept;

/// The device with its index filled in: "cuda" becomes the current cuda device, "cpu:0" the CPU.
[[nodiscard]] c10::Device with_index(c10::Device device);

/// with_index(device), or DeviceError with the device, what exists, and the call that falls back.
[[nodiscard]] c10::Device present_device(c10::Device device);

}  // namespace use_gpu::detail
