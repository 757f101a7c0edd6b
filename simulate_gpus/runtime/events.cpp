// SPDX-License-Identifier: MIT
#include "events.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "capture_modes.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "settings.hpp"
#include "streams.hpp"

using namespace simulate_gpus;

namespace {

// Of all events: what one thread records, another may wait for.
std::mutex mutex;

CUevent_st copy_of(cudaEvent_t event) {
  const std::scoped_lock lock(mutex);
  CUevent_st copy = *event;
  if (copy.shared && !copy.captured.capture) {
    copy.moment = copy.shared->last();
    copy.is_recorded = copy.shared->is_recorded();
  }
  return copy;
}

// How a handle leads to an event of another process.
constexpr std::uint32_t k_event_magic = 0x65766531;
struct EventHandle {
  std::uint32_t magic;
  SlotName slot;
};
static_assert(sizeof(EventHandle) <= sizeof(cudaIpcEventHandle_t));

}  // namespace

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  SIMULATE_GPUS_ENTER();
  constexpr unsigned k_flags =
      cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
  const bool is_shared = (flags & cudaEventInterprocess) != 0;
  const bool measures_time = (flags & cudaEventDisableTiming) == 0;
  if (event == nullptr || (flags & ~k_flags) != 0 || (is_shared && measures_time))
    return fail(cudaErrorInvalidValue);
  make_context(current_device());
  std::shared_ptr<SharedEvent> shared;
  if (is_shared) {
    shared = SharedEvent::make();
    if (!shared) return fail(cudaErrorMemoryAllocation, "no more events can be shared");
  }
  *event = new CUevent_st{
      .device = current_device(), .measures_time = measures_time, .shared = std::move(shared)};
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  SIMULATE_GPUS_PASS_ON();
  return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidResourceHandle, event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidResourceHandle, event);
  CUstream_st& stream = stream_of(handle);
  if (event->device != stream.device) return fail(cudaErrorInvalidResourceHandle);
  const CapturedMoment captured = captured_moment(stream);
  const Moment moment = captured.capture ? Moment{}
                        : event->shared  ? event->shared->record(stream)
                                         : moment_after(stream);
  Notes notes;
  tell(&Tool::note, stream, notes);
  if (!notes.is_empty()) tell_given(stream, {.kind = Kind::event, .name = "event", .notes = notes});
  const std::scoped_lock lock(mutex);
  event->is_recorded = true;
  event->moment = moment;
  event->captured = captured;
  event->time = std::chrono::steady_clock::now();
  event->notes = std::move(notes);
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  SIMULATE_GPUS_PASS_ON();
  if (flags > cudaEventRecordExternal) return fail(cudaErrorInvalidValue);
  return cudaEventRecord(event, stream);
}

// Returns the current state, then does the work, as far as no other rank has to give its part, so
// that a program that polls ends.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidResourceHandle, event);
  const CUevent_st recorded = copy_of(event);
  if (const cudaError_t refused = refuse_look(recorded.captured)) return refused;
  if (const cudaError_t refused = refuse_unsafe()) return refused;
  if (recorded.moment.is_finished()) {
    tell(&Tool::host_sees, HostWait{.event = &recorded.notes});
    return take_failure();
  }
  // What a thread only looks at, as c10d's does that looks for hung work, is done in the end too.
  constexpr std::chrono::seconds k_old(2);
  if (gives_work() || std::chrono::steady_clock::now() - recorded.time > k_old)
    static_cast<void>(recorded.moment.try_finish());
  return not_ready();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidResourceHandle, event);
  const CUevent_st recorded = copy_of(event);
  if (const cudaError_t refused = refuse_look(recorded.captured)) return refused;
  tell_wait({.reason = HostWait::Reason::event, .event = &recorded.notes},
            [&] { recorded.moment.finish(); });
  return take_failure();
}

// The time between the two records; it means nothing here.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, milliseconds);
  SIMULATE_GPUS_NEED(cudaErrorInvalidResourceHandle, start, end);
  const CUevent_st from = copy_of(start), to = copy_of(end);
  if (!from.is_recorded || !to.is_recorded || !from.measures_time || !to.measures_time ||
      from.device != to.device) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (!from.moment.is_finished() || !to.moment.is_finished()) return not_ready();
  // With --deterministic: so autotuners find all candidates alike, take the first, and do not repeat what lasts so long.
  constexpr float k_always = 1000;
  *milliseconds = settings().deterministic
                      ? k_always
                      : std::chrono::duration<float, std::milli>(to.time - from.time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidResourceHandle, event);
  if (flags > cudaEventWaitExternal) return fail(cudaErrorInvalidValue);
  CUstream_st& stream = stream_of(handle);
  const CUevent_st recorded = copy_of(event);
  if (recorded.captured.capture) {
    if (const cudaError_t refused = join(stream, recorded.captured)) return refused;
  } else if (is_captured(stream)) {
    const bool is_outside = recorded.is_recorded && flags != cudaEventWaitExternal;
    if (is_outside) return refuse_event_from_outside(stream);
  } else if (!recorded.moment.is_finished()) {
    submit(stream, [moment = recorded.moment] { moment.finish(); });
    if (recorded.shared) recorded.shared->hasten();
  }
  if (!recorded.notes.is_empty()) {
    tell_given(stream, {.kind = Kind::wait, .name = "waits for an event", .notes = recorded.notes});
  }
  make_context(stream.device);
  return cudaSuccess;
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, handle);
  SIMULATE_GPUS_NEED(cudaErrorInvalidResourceHandle, event);
  if (!event->shared || event->is_opened) return fail(cudaErrorInvalidResourceHandle);
  serve_others();
  const EventHandle made{k_event_magic, event->shared->name()};
  *handle = {};
  std::memcpy(handle, &made, sizeof made);
  return cudaSuccess;
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  SIMULATE_GPUS_ENTER();
  EventHandle wanted{};
  std::memcpy(&wanted, &handle, sizeof wanted);
  if (event == nullptr || wanted.magic != k_event_magic) return fail(cudaErrorInvalidValue);
  make_context(current_device());
  if (is_own(wanted.slot)) {
    return fail(cudaErrorDeviceUninitialized,
                "this process opened a handle of its own event; handles are for other processes");
  }
  auto shared = SharedEvent::open(wanted.slot);
  if (!shared) {
    return fail(cudaErrorInvalidResourceHandle,
                "a handle of an event of process " + std::to_string(wanted.slot.process) +
                    " was opened, which has ended or has destroyed that event");
  }
  *event = new CUevent_st{.device = current_device(),
                          .measures_time = false,
                          .shared = std::move(shared),
                          .is_opened = true};
  return cudaSuccess;
}
}
