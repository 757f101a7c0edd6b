// SPDX-License-Identifier: MIT
#include <use_gpu/prefetch.hpp>

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <use_gpu/device.hpp>
#include <use_gpu/errors.hpp>
#include <use_gpu/transfers.hpp>

#include <string>
#include <utility>

#include "device_check.hpp"

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
  explicit Sent(c10::Device on) : device(on) {}
  ~Sent() {
    // Destroying an event of another device would make a CUDA context on the current one.
    if (!event) return;
    const c10::DeviceGuard current(device);
    event.reset();
  }
  Sent(const Sent&) = delete;
  Sent& operator=(const Sent&) = delete;

  c10::Device device;
  std::vector<at::Tensor> tensors;  // new ones, whose memory belongs to the sender's stream
  std::optional<c10::Event> event;  // after their copies
};

struct Sender::State {
  State(c10::Device to, int depth)
      : device(checked(to, depth)), next(std::make_shared<Sent>(device)) {
    if (!is_always_there(device))
      stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  }
  c10::Device device;
  std::optional<c10::Stream> stream;  // none on the CPU
  std::shared_ptr<Sent> next;
};

Sender::Sender(c10::Device device, int depth) : state_(std::make_shared<State>(device, depth)) {}

at::Tensor Sender::send(const at::Tensor& x) {
  const auto& [device, stream, next] = *state_;
  if (same_device(x.device(), device)) return x;
  if (!stream) return to_device(x, device);
  const AllowTransfers certain;
  const bool is_pinnable = x.is_cpu() && x.layout() == c10::kStrided;
  const auto pinned = is_pinnable && !x.is_pinned() ? x.pin_memory() : x;
  const c10::StreamGuard in_stream(*stream);
  next->tensors.push_back(pinned.to(device, /*non_blocking=*/is_pinnable));
  return next->tensors.back();
}

std::shared_ptr<Sender::Sent> Sender::sent() {
  auto& next = state_->next;
  if (!next->tensors.empty()) {
    const c10::DeviceGuard current(state_->device);
    next->event.emplace(state_->device.type());
    next->event->record(*state_->stream);
  }
  return std::exchange(next, std::make_shared<Sent>(state_->device));
}

void Sender::receive(Sent& sent) {
  if (!sent.event) return;
  const c10::DeviceGuard current(sent.device);
  const auto stream = c10::impl::VirtualGuardImpl(sent.device.type()).getStream(sent.device);
  sent.event->block(stream);
  for (const auto& x : sent.tensors) {
    // LibTorch otherwise gives the memory away as soon as the sender's stream is done with it.
    if (x.layout() == c10::kStrided) x.record_stream(stream);
  }
  sent.tensors.clear();
}

}  // namespace detail
}  // namespace use_gpu
