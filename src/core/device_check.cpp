// SPDX-License-Identifier: MIT
#include "core/device_check.hpp"

#include <c10/core/DeviceGuard.h>
#include <unistd.h>
#include <use_gpu/errors.hpp>

#include <atomic>
#include <cstdlib>

#include "core/messages/error_text.hpp"

namespace use_gpu::detail {
namespace {

std::atomic<bool> program_is_over = false;

// exit() destroys its thread's own objects before all static ones. The first of them is destroyed
// last; so this one is made when the library is loaded, and only in the main thread.
// What it registers comes before all that is registered by then; and never, if the thread alone has ended.
struct MainThread {
  ~MainThread() {
    std::atexit([] { program_is_over = true; });
  }
};
thread_local MainThread main_thread;
[[maybe_unused]] const MainThread* const k_main_thread =
    ::getpid() == ::gettid() ? &main_thread : nullptr;

}  // namespace

bool is_exiting() noexcept { return program_is_over; }

bool is_always_there(c10::Device device) { return device.is_cpu() || device.is_meta(); }

int count_devices(c10::DeviceType type) noexcept try {
  if (is_exiting() || !c10::impl::hasDeviceGuardImpl(type)) return 0;
  const QuietWarnings quiet;
  return c10::impl::VirtualGuardImpl(type).deviceCount();
} catch (...) {  // a device that cannot even be counted cannot be used
  return 0;
}

c10::Device with_index(c10::Device device) {
  if (is_always_there(device)) return c10::Device(device.type());
  if (device.has_index()) return device;
  if (count_devices(device.type()) == 0) return c10::Device(device.type(), 0);
  return c10::impl::VirtualGuardImpl(device.type()).getDevice();
}

c10::Device present_device(c10::Device device) {
  const int count = count_devices(device.type());
  const int index = device.has_index() ? device.index() : 0;
  if (is_always_there(device) || (index >= 0 && index < count)) return with_index(device);
  const std::string type = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  std::string found = count == 0 ? "none" : type + ":0";
  if (count > 1) found += " to " + type + ":" + std::to_string(count - 1);
  throw DeviceError(c10::str("Device ", device, " was not found; available: ", found,
                             ". use_gpu::try_gpu(", device.has_index() ? std::to_string(index) : "",
                             ") falls back to the CPU, use_gpu::num_gpus() counts the GPUs."));
}

void EventDeleter::operator()(c10::Event* event) const noexcept try {
  const c10::DeviceGuard current(event->device());
  delete event;
} catch (const c10::Error&) {  // the device is lost, and the event with it
}

}  // namespace use_gpu::detail
