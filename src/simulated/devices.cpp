// SPDX-License-Identifier: MIT
//
// How many simulated GPUs there are and which one is current on this thread. Everything that runs
// on them is done when the call returns, so their one stream is always idle and each event has
// happened.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>

#include "backend.hpp"

namespace use_gpu::simulated {
namespace {

std::atomic<int> g_device_count = 0;
thread_local c10::DeviceIndex t_current = 0;

c10::Stream only_stream(c10::Device device) { return c10::Stream(c10::Stream::DEFAULT, device); }

struct DeviceGuard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = k_type;  // C10_REGISTER_GUARD_IMPL reads it
  DeviceGuard() = default;

  c10::DeviceType type() const override { return k_type; }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  c10::Device getDevice() const override { return current_device(); }
  void setDevice(c10::Device device) const override { set_current_device(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    t_current = device.index();
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = current_device();
    set_current_device(device);
    return before;
  }

  c10::Stream getStream(c10::Device device) const noexcept override { return only_stream(device); }
  c10::Stream getDefaultStream(c10::Device device) const override { return only_stream(device); }
  c10::Stream getNewStream(c10::Device device, int) const override { return only_stream(device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return only_stream(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return only_stream(stream.device());
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}

  void record(void**, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, DeviceGuard);

}  // namespace

int device_count() noexcept { return g_device_count; }
void set_device_count(int count) noexcept { g_device_count = count; }

c10::Device device(int index) { return {k_type, static_cast<c10::DeviceIndex>(index)}; }
c10::Device current_device() noexcept { return {k_type, t_current}; }

void set_current_device(c10::Device device) {
  if (!device.has_index()) return;
  TORCH_CHECK(device.index() < device_count(), "invalid device ordinal: ", device, " of ",
              device_count(), " simulated GPUs");
  t_current = device.index();
}

}  // namespace use_gpu::simulated
