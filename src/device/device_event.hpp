// SPDX-License-Identifier: MIT
//
// Events whose destruction never throws, and makes no context on another device.
#pragma once

#include <c10/core/Event.h>

#include <memory>

namespace use_gpu::detail {

/// Destroys an event while its device is the current one: else CUDA would make a context on the
/// current device. Where that fails, it keeps the event.
struct EventDeleter {
  void operator()(c10::Event* event) const noexcept;
};
using EventPointer = std::unique_ptr<c10::Event, EventDeleter>;

}  // namespace use_gpu::detail
