// SPDX-License-Identifier: MIT
#include "device/device_event.hpp"

#include <c10/core/DeviceGuard.h>

namespace use_gpu::detail {

void EventDeleter::operator()(c10::Event* event) const noexcept {
  try {
    const c10::DeviceGuard current(event->device());
    delete event;
  } catch (const c10::Error&) {  // the device is lost, and the event with it
  }
}

}  // namespace use_gpu::detail
