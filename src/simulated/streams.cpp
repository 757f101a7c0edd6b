// SPDX-License-Identifier: MIT
//
// The streams of the simulated GPUs. Kernels run at once; what a stream postpones is what the host
// could miss: asynchronous copies into pinned memory. They are done, in their order, when somebody
// waits for their stream, for an event behind them or for the device, and no earlier: a program
// that forgets to wait reads wrong numbers every time, not once a month.
#include <array>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "backend.hpp"

namespace use_gpu::simulated {
namespace {

struct Queue {
  std::deque<std::function<void()>> work;
  std::uint64_t done = 0;  // how much of what was ever queued

  [[nodiscard]] std::uint64_t queued() const { return done + work.size(); }
};

// Recursive, as a stream's work may be to wait for another stream.
struct Queues {
  std::recursive_mutex mutex;
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, Queue> all;
  c10::StreamId last_stream = 0;

  Queue& of(c10::Stream stream) { return all[{stream.device_index(), stream.id()}]; }
};

Queues& queues() {
  static auto* const instance = new Queues;  // static tensors may outlive main()
  return *instance;
}

thread_local std::array<c10::StreamId, k_most_devices> t_current{};  // default streams

}  // namespace

c10::Stream stream(c10::Device device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, device.has_index() ? device : current_device(), id);
}

c10::Stream current_stream(c10::Device device) {
  if (!device.has_index()) device = current_device();
  return stream(device, t_current.at(static_cast<std::size_t>(device.index())));
}

void set_current_stream(c10::Stream stream) {
  t_current.at(static_cast<std::size_t>(stream.device_index())) = stream.id();
}

c10::Stream new_stream(c10::Device device) {
  const std::lock_guard lock(queues().mutex);
  return stream(device, ++queues().last_stream);
}

void postpone(c10::Stream stream, std::function<void()> work) {
  const std::lock_guard lock(queues().mutex);
  queues().of(stream).work.push_back(std::move(work));
}

Moment now(c10::Stream stream) {
  const std::lock_guard lock(queues().mutex);
  return {stream, queues().of(stream).queued()};
}

bool has_passed(const Moment& moment) {
  const std::lock_guard lock(queues().mutex);
  return queues().of(moment.stream).done >= moment.queued;
}

void wait_for(const Moment& moment) {
  const std::lock_guard lock(queues().mutex);
  auto& queue = queues().of(moment.stream);
  while (queue.done < moment.queued) {
    const auto next = std::move(queue.work.front());
    queue.work.pop_front();
    ++queue.done;
    next();
  }
}

void wait_for_device(c10::DeviceIndex index) {
  const std::lock_guard lock(queues().mutex);
  for (const auto& [key, queue] : queues().all) {
    if (key.first == index) wait_for(now(stream(device(index), key.second)));
  }
}

}  // namespace use_gpu::simulated
