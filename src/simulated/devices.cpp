// SPDX-License-Identifier: MIT
//
// How many simulated GPUs there are, which one is current on this thread, and the streams and
// events of the device-generic c10::Stream and c10::Event.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>

#include "backend.hpp"

namespace use_gpu::simulated {
namespace {

std::atomic<int> g_device_count = 0;
thread_local c10::DeviceIndex t_current = 0;

const Moment& moment_of(void* event) { return *static_cast<const Moment*>(event); }

struct DeviceGuard final : c10::impl::DeviceGuardImplInterface {
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

  c10::Stream getStream(c10::Device device) const override { return current_stream(device); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream(device, k_default_stream);
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return new_stream(device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return new_stream(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const auto before = current_stream(stream.device());
    set_current_stream(stream);
    return before;
  }
  // Whoever asks again and again shall not ask for ever: after the answer "not yet" it gets done.
  bool queryStream(const c10::Stream& stream) const override { return ask(now(stream)); }
  void synchronizeStream(const c10::Stream& stream) const override { wait_for(now(stream)); }
  void synchronizeDevice(const c10::DeviceIndex index) const override { wait_for_device(index); }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    destroyEvent(*event, stream.device_index());
    *event = new Moment(now(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    postpone(stream, [moment = moment_of(event)] { wait_for(moment); });
  }
  bool queryEvent(void* event) const override { return event == nullptr || ask(moment_of(event)); }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) wait_for(moment_of(event));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Moment*>(event);
  }

 private:
  static bool ask(const Moment& moment) {
    const bool passed = has_passed(moment);
    wait_for(moment);
    return passed;
  }
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
