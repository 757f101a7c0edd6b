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

namespace USE_GPU_EXPORT use_gpu {
namespace detail {

struct Sender::Sent {
  std::vector<at::Tensor> tensors;  // new ones, whose memory belongs to the sender's stream
  EventPointer event;               // after their copies
};

Sender::Sender(c10::Device device, int depth)
    : device_(present_device(device)), next_(std::make_shared<Sent>()) {
  if (depth < 1) {
    throw ArgumentError("prefetch: the depth is " + std::to_string(depth) +
                        "; it is how many batches are on their way, at least 1.");
  }
  if (!is_always_there(device_))
    stream_ = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_);
}

at::Tensor Sender::send(const at::Tensor& x) {
  if (same_device(x.device(), device_)) return x;
  // LibTorch can neither pin these nor record who uses their memory.
  if (!stream_ || x.layout() != c10::kStrided || x.is_nested() || x.is_quantized())
    return to_device(x, device_);
  const AllowTransfers certain;
  // It copies nothing into memory in which elements overlap.
  const auto pinned = !x.is_cpu() || x.is_pinned()       ? x
                      : x.is_non_overlapping_and_dense() ? x.pin_memory()
                                                         : x.contiguous().pin_memory();
  const c10::StreamGuard in_stream(*stream_);
  return next_->tensors.emplace_back(pinned.to(device_, /*non_blocking=*/x.is_cpu()));
}

std::shared_ptr<Sender::Sent> Sender::sent() {
  if (!next_->tensors.empty()) {
    const c10::DeviceGuard current(device_);
    next_->event.reset(new c10::Event(device_.type()));
    next_->event->record(*stream_);
  }
  return std::exchange(next_, std::make_shared<Sent>());
}

void Sender::receive(Sent& sent) const {
  if (!sent.event) return;
  const c10::DeviceGuard current(device_);
  const auto stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  sent.event->block(stream);
  // LibTorch otherwise gives the memory away as soon as the sender's stream is done with it.
  for (const auto& x : sent.tensors) x.record_stream(stream);
  sent.tensors.clear();
}

bool Sender::is_exiting() noexcept { return detail::is_exiting(); }

}  // namespace detail
}  // namespace use_gpu
