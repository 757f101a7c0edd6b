// SPDX-License-Identifier: MIT
#include <use_gpu/prefetch.hpp>

#include <ATen/ops/empty_like.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <use_gpu/allow_transfers.hpp>
#include <use_gpu/device.hpp>

#include <algorithm>
#include <cstddef>

#include "core/copies/flat_buffers.hpp"
#include "core/device_check.hpp"

namespace use_gpu::detail {
namespace {

// By this thread alone: copy_ waits for a thread of each processor, on a busy machine for milliseconds.
at::Tensor pinned_copy(const at::Tensor& x) {
  auto copy = at::empty_like(x, x.options().pinned_memory(true));
  if (!is_dense_and_resolved(x) || x.requires_grad()) return copy.copy_(x);
  std::copy_n(static_cast<const std::byte*>(x.const_data_ptr()), x.nbytes(),
              static_cast<std::byte*>(copy.mutable_data_ptr()));
  return copy;
}

}  // namespace

// New tensors, each with an event in the stream that its memory belongs to, after its copy.
struct Sender::Sent : std::vector<std::pair<at::Tensor, EventPointer>> {};

Sender::Sender(c10::Device device, int depth)
    : device_(present_device(device)), next_(std::make_shared<Sent>()) {
  if (depth < 1) {
    throw ArgumentError("prefetch: the depth is " + std::to_string(depth) +
                        "; it is how many batches are on their way, at least 1.");
  }
  if (is_always_there(device_)) return;
  depth_ = depth;
  stream_ = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_);
}

at::Tensor Sender::send(const at::Tensor& x) {
  if (!stream_) return to_device(x, device_);
  const bool is_there = same_device(x.device(), device_);
  // LibTorch can neither pin these nor record who uses their memory.
  if (x.layout() != c10::kStrided || x.is_nested() || x.is_quantized())
    return is_there ? x.clone() : to_device(x, device_);
  const AllowTransfers certain;
  // Pinned tensors too: their owner may write to them while the copy is under way.
  const auto source = x.is_cpu() ? pinned_copy(x) : x;
  // What is there already is written in the current stream: before this copy, and again after it.
  const auto current = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  const c10::StreamGuard in_stream(is_there ? current : *stream_);
  next_->emplace_back(
      source.to(device_, x.scalar_type(), /*non_blocking=*/x.is_cpu(), /*copy=*/true),
      EventPointer(new c10::Event(device_.type())));
  auto& [there, event] = next_->back();
  event->record(in_stream.current_stream());
  return there;
}

std::shared_ptr<Sender::Sent> Sender::sent() {
  return std::exchange(next_, std::make_shared<Sent>());
}

void Sender::receive(Sent& sent) const {
  if (sent.empty()) return;
  const c10::DeviceGuard current(device_);
  const auto stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  for (const auto& [x, event] : sent) {
    event->block(stream);
    // LibTorch otherwise gives the memory away as soon as its own stream is done with it.
    x.record_stream(stream);
  }
  sent.clear();
}

bool Sender::is_exiting() noexcept { return detail::is_exiting(); }

}  // namespace use_gpu::detail
