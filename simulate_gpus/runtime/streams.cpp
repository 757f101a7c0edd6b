// SPDX-License-Identifier: MIT
#include "streams.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "capture_modes.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "interface.hpp"
#include "rehearsal.hpp"
#include "settings.hpp"
#include "tool.hpp"

namespace simulate_gpus {
namespace {

// Never destroyed: LibTorch uses streams until the very end of a process.
struct Streams {
  std::array<CUstream_st, k_most_gpus> default_streams;
  std::mutex mutex;  // guards the rest
  std::set<CUstream_st*> made;
  int count_made = 0;
};

Streams& streams() {
  static auto* const streams = [] {
    auto* const made = new Streams;
    for (int device = 0; device < k_most_gpus; ++device) {
      made->default_streams[static_cast<std::size_t>(device)].device = device;
    }
    return made;
  }();
  return *streams;
}

// Streams other than the default ones exist.
std::atomic<bool> made_streams = false;

CUstream_st& default_stream(int device) {
  return streams().default_streams[static_cast<std::size_t>(device)];
}

// The queues of the streams that meet the condition; they outlive a stream that is destroyed.
std::vector<std::shared_ptr<Queue>> queues_where(const auto& condition) {
  std::vector<std::shared_ptr<Queue>> found;
  for_each_stream([&](const CUstream_st& stream) {
    if (condition(stream)) found.push_back(stream.queue);
  });
  return found;
}

void wait_for(CUstream_st& stream, CUstream_st& other) {
  tell(&Tool::waits, stream, other);
  const Moment moment{other.queue, other.queue->end()};
  if (!moment.is_finished()) stream.queue->submit([moment] { moment.finish(); });
}

// The default stream and blocking streams wait for each other (CUDA's "legacy default stream").
// LibTorch's are non-blocking.
void order_with_default_stream(CUstream_st& stream) {
  if (!made_streams) return;
  CUstream_st& ours = default_stream(stream.device);
  if (stream.waits_for_default_stream) {
    wait_for(stream, ours);
  } else if (&stream == &ours) {
    for_each_stream([&](CUstream_st& other) {
      if (other.device == stream.device && other.waits_for_default_stream) wait_for(stream, other);
    });
  }
}

thread_local bool has_given_work = false;

Work wrapped(CUstream_st& stream, Work work) {
  for (Tool* tool = first_tool(); tool != nullptr; tool = tool->next())
    work = tool->wraps(stream, std::move(work));
  return work;
}

bool is_default_handle(cudaStream_t handle) {
  return handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread;
}

void finish_where(const auto& condition) {
  for (const auto& queue : queues_where(condition)) queue->finish(queue->end());
}

}  // namespace

CUstream_st& stream_of(cudaStream_t handle) {
  return is_default_handle(handle) ? default_stream(current_device()) : *handle;
}

bool gives_work() { return has_given_work; }

void submit(CUstream_st& stream, Work work, Work undo) {
  make_context(stream.device);
  has_given_work = true;
  if (const auto capture = stream.capture.load()) {
    work();
    record(*capture, stream, std::move(work), std::move(undo));
    return;
  }
  order_with_default_stream(stream);
  if (calls_are_watched.load(std::memory_order_relaxed)) work = wrapped(stream, std::move(work));
  stream.queue->submit(std::move(work));
}

Moment moment_after(CUstream_st& stream) {
  make_context(stream.device);
  has_given_work = true;
  order_with_default_stream(stream);
  return {stream.queue, stream.queue->end()};
}

void finish(CUstream_st& stream) {
  make_context(stream.device);
  order_with_default_stream(stream);
  stream.queue->finish(stream.queue->end());
}

void finish_device(int device) {
  finish_where([&](const CUstream_st& stream) { return stream.device == device; });
}

void finish_all() {
  tell_wait({HostWait::Reason::free}, [] { finish_device(current_device()); });
  advance_streams();
}

void for_each_stream(const std::function<void(CUstream_st&)>& action) {
  const std::scoped_lock lock(streams().mutex);
  for (CUstream_st* stream : streams().made) action(*stream);
  for (CUstream_st& stream : streams().default_streams) action(stream);
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

bool simulate_gpus::postpones() { return made_streams; }

void simulate_gpus::finish_all_work() { finish_all(); }

void simulate_gpus::advance_streams() {
  for (const auto& queue : queues_where([](const CUstream_st&) { return true; }))
    static_cast<void>(queue->try_finish(queue->end()));
}

void simulate_gpus::submit(cudaStream_t stream, std::function<void()> work) {
  simulate_gpus::submit(stream_of(stream), std::move(work));
}

StreamMoment simulate_gpus::submit_with_moment(cudaStream_t handle, std::function<void()> work) {
  CUstream_st& stream = stream_of(handle);
  simulate_gpus::submit(stream, std::move(work));
  const Moment after{stream.queue, stream.queue->end()};
  return {.is_over = [after] { return after.is_finished(); },
          .advance = [after] { return after.try_finish(); }};
}

cudaError_t simulate_gpus::begin_operation(cudaStream_t handle) {
  if (const cudaError_t refused = refuse_in_rehearsal()) return refused;
  const Call call("cudaLaunchKernel");
  if (const cudaError_t refused = enter("cudaLaunchKernel")) return fail(refused);
  if (const cudaError_t refused = refuse_lost()) return fail(refused);
  if (const cudaError_t refused = unreported_refusal()) return refused;
  CUstream_st& stream = stream_of(handle);
  make_context(stream.device);
  has_given_work = true;
  if (simulate_gpus::is_captured(stream)) return cudaSuccess;
  order_with_default_stream(stream);
  if (stream.queue->renew()) return cudaSuccess;  // nothing else was given since
  stream.queue->finish(stream.queue->end());
  stream.queue->submit({});  // so that the stream is busy until it is waited for
  return cudaSuccess;
}

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  SIMULATE_GPUS_ENTER();
  if (stream == nullptr || flags > cudaStreamNonBlocking) return fail(cudaErrorInvalidValue);
  make_context(current_device());
  *stream = new CUstream_st{.device = current_device(),
                            .priority = std::clamp(priority, k_greatest_priority, k_least_priority),
                            .waits_for_default_stream = (flags & cudaStreamNonBlocking) == 0};
  const std::scoped_lock lock(streams().mutex);
  (*stream)->number = ++streams().count_made;
  streams().made.insert(*stream);
  made_streams = true;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  SIMULATE_GPUS_PASS_ON();
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  SIMULATE_GPUS_PASS_ON();
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  if (is_default_handle(stream)) return fail(cudaErrorInvalidResourceHandle);
  finish(*stream);
  {
    const std::scoped_lock lock(streams().mutex);
    streams().made.erase(stream);
  }
  tell(&Tool::ends, *stream);  // when nobody finds it any more
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  SIMULATE_GPUS_ENTER();
  CUstream_st& stream = stream_of(handle);
  if (const cudaError_t refused = refuse_wait(stream)) return refused;
  tell_wait({HostWait::Reason::stream, &stream}, [&] { finish(stream); });
  return take_failure();
}

// Returns the current state, then does the work, as far as no other rank has to give its part, so
// that a program that polls ends.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  SIMULATE_GPUS_ENTER();
  CUstream_st& stream = stream_of(handle);
  if (const cudaError_t refused = refuse_wait(stream)) return refused;
  if (const cudaError_t refused = refuse_unsafe()) return refused;
  const bool is_ready = stream.queue->is_finished(stream.queue->end());
  order_with_default_stream(stream);
  if (is_ready) tell(&Tool::host_sees, HostWait{.stream = &stream});
  static_cast<void>(stream.queue->try_finish(stream.queue->end()));
  return is_ready ? take_failure() : not_ready();
}

cudaError_t cudaDeviceSynchronize() {
  SIMULATE_GPUS_ENTER();
  if (const cudaError_t refused = refuse_device_wait(current_device())) return refused;
  make_context(current_device());
  tell_wait({.reason = HostWait::Reason::device, .device = current_device()},
            [] { finish_device(current_device()); });
  return take_failure();
}
}
