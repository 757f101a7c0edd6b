// SPDX-License-Identifier: MIT
#include <use_gpu/prefetch.hpp>

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <use_gpu/device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/transfers.hpp>

#include <string>
#include <utility>

#include "device/device_check.hpp"
#include "device/device_event.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace detail {
namespace {

c10::Device checked(c10::Device device, int depth) {
  if (depth < 1) {
    throw ArgumentError("prefetch: the depth is " + std::to_string(depth) +
                        "; it is how many batches are on their way, at least 1.");
  }
  return present_device(device);
}

}  // namespace

struct Sender::Sent {
  std::vector<at::Tensor> tensors;  // new ones, whose memory belongs to the sender's stream
  EventPointer event;               // after their copies
};

struct Sender::State {
  State(c10::Device to, int depth) : device(checked(to, depth)) {
    if (!is_always_there(device))
      stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  }
  c10::Device device;
  std::optional<c10::Stream> stream;  // none on the CPU
  std::shared_ptr<Sent> next = std::make_shared<Sent>();
};

Sender::Sender(c10::Device device, int depth) : state_(std::make_shared<State>(device, depth)) {}

at::Tensor Sender::send(const at::Tensor& x) {
  const auto& [device, stream, next] = *state_;
  if (same_device(x.device(), device)) return x;
  if (!stream) return to_device(x, device);
  // LibTorch can neither pin these nor record who uses their memory.
  if (x.layout() != c10::kStrided || x.is_nested() || x.is_quantized()) return to_device(x, device);
  const AllowTransfers certain;
  // It copies nothing into memory in which elements overlap.
  const auto pinned = !x.is_cpu() || x.is_pinned()       ? x
                      : x.is_non_overlapping_and_dense() ? x.pin_memory()
                                                         : x.contiguous().pin_memory();
  const c10::StreamGuard in_stream(*stream);
  next->tensors.push_back(pinned.to(device, /*non_blocking=*/x.is_cpu()));
  return next->tensors.back();
}

std::shared_ptr<Sender::Sent> Sender::sent() {
  auto& next = state_->next;
  if (!next->tensors.empty()) {
    const c10::DeviceGuard current(state_->device);
    next->event.reset(new c10::Event(state_->device.type()));
    next->event->record(*state_->stream);
  }
  return std::exchange(next, std::make_shared<Sent>());
}

void Sender::receive(Sent& sent) {
  if (!sent.event) return;
  const c10::DeviceGuard current(state_->device);
  const auto stream = c10::impl::VirtualGuardImpl(state_->device.type()).getStream(state_->device);
  sent.event->block(stream);
  // LibTorch otherwise gives the memory away as soon as the sender's stream is done with it.
  for (const auto& x : sent.tensors) x.record_stream(stream);
  sent.tensors.clear();
}

bool Sender::is_exiting() noexcept { return detail::is_exiting(); }

}  // namespace detail
}  // namespace use_gpu
