// SPDX-License-Identifier: MIT
#include "captures.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "capture.hpp"
#include "errors.hpp"
#include "interface.hpp"
#include "streams.hpp"

namespace simulate_gpus {

CapturedMoment captured_moment(const CUstream_st& stream) {
  const auto capture = stream.capture.load();
  if (!capture) return {};
  const std::scoped_lock lock(capture->mutex);
  return {capture, &stream, capture->steps[&stream].given};
}

cudaError_t join(CUstream_st& stream, const CapturedMoment& moment) {
  Capture& capture = *moment.capture;
  if (capture.is_invalid) return fail(cudaErrorInvalidValue);
  if (capture.has_ended) return fail(cudaErrorCapturedEvent);
  if (stream.is_default()) {
    capture.is_invalid = true;
    return fail(cudaErrorStreamCaptureImplicit);
  }
  if (const auto own = stream.capture.load(); own && own != moment.capture) {
    own->is_invalid = true;
    capture.is_invalid = true;
    return fail(cudaErrorStreamCaptureMerge);
  }
  if (moment.stream != &stream) {
    const std::scoped_lock lock(capture.mutex);
    std::size_t& joined = capture.steps[moment.stream].joined;
    joined = std::max(joined, moment.given);
  }
  stream.capture.store(moment.capture);
  return cudaSuccess;
}

bool is_captured(const CUstream_st& stream) { return stream.capture.exists(); }

bool is_capturing_on(int device) {
  bool found = false;
  for_each_stream([&](const CUstream_st& stream) {
    found = found || (stream.device == device && is_captured(stream));
  });
  return found;
}

cudaError_t invalidate(const CUstream_st& stream, cudaError_t error) {
  const auto capture = stream.capture.load();
  if (!capture) return cudaSuccess;
  capture->is_invalid = true;
  return fail(error);
}

cudaError_t refuse_device_wait(int device) {
  cudaError_t refused = cudaSuccess;
  for_each_stream([&](const CUstream_st& stream) {
    if (stream.device == device && refuse_wait(stream)) refused = cudaErrorStreamCaptureUnsupported;
  });
  return refused;
}

cudaError_t refuse_wait(const CUstream_st& stream) {
  return invalidate(stream, cudaErrorStreamCaptureUnsupported);
}

cudaError_t refuse_event_from_outside(const CUstream_st& stream) {
  return invalidate(stream, cudaErrorStreamCaptureIsolation);
}

cudaError_t refuse_look(const CapturedMoment& moment) {
  if (!moment.capture) return cudaSuccess;
  if (moment.capture->is_invalid) return fail(cudaErrorInvalidValue);
  if (!moment.capture->has_ended) moment.capture->is_invalid = true;
  return fail(cudaErrorCapturedEvent);
}

void record(Capture& capture, const CUstream_st& stream, Work step, Work undo) {
  const std::scoped_lock lock(capture.mutex);
  if (undo) capture.undo.push_back(std::move(undo));
  Recording& recording = *capture.graph->recording;
  recording.steps.push_back(
      {[step = std::move(step)](CUstream_st& launched) { submit(launched, step); },
       recording.given.size()});
  ++capture.steps[&stream].given;
}

void at_each_launch(Capture& capture, std::function<void(CUstream_st& launched)> action) {
  const std::scoped_lock lock(capture.mutex);
  capture.graph->recording->at_each_launch.push_back(std::move(action));
}

void tell_given(CUstream_st& stream, const Given& given) {
  const auto capture = stream.capture.load();
  tell(&Tool::given, stream, given, capture != nullptr);
  if (!capture) return;
  const std::scoped_lock lock(capture->mutex);
  Recording& recording = *capture->graph->recording;
  recording.given.push_back({stream.device, stream.number, &stream == capture->origin, given});
  Given& kept = recording.given.back().given;
  kept.name = recording.texts.emplace_back(given.name);
  kept.call = recording.texts.emplace_back(given.call);
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

bool simulate_gpus::is_captured(cudaStream_t stream) {
  return simulate_gpus::is_captured(stream_of(stream));
}

void simulate_gpus::record(cudaStream_t handle, std::function<void()> step,
                           std::function<void()> undo) {
  const CUstream_st& stream = stream_of(handle);
  simulate_gpus::record(*stream.capture.load(), stream, std::move(step), std::move(undo));
}

void simulate_gpus::record_submission(cudaStream_t handle,
                                      std::function<void(cudaStream_t)> submission) {
  const CUstream_st& stream = stream_of(handle);
  const auto capture = stream.capture.load();
  const std::scoped_lock lock(capture->mutex);
  Recording& recording = *capture->graph->recording;
  recording.steps.push_back(
      {[step = std::move(submission)](CUstream_st& launched) { step(&launched); },
       recording.given.size()});
  ++capture->steps[&stream].given;
}

bool simulate_gpus::has_tools() { return first_tool() != nullptr; }

void simulate_gpus::tell_operation(cudaStream_t stream, std::string_view name) {
  tell_given(stream_of(stream), {.kind = Kind::operation, .name = name});
}

bool simulate_gpus::wants_parts() { return ask(&Tool::wants_parts); }

void simulate_gpus::tell_parts(const std::vector<Given>& parts) { tell(&Tool::would_give, parts); }

void simulate_gpus::tell_collective(cudaStream_t stream, std::string_view name, std::uint64_t bytes,
                                    std::string_view call) {
  tell_given(stream_of(stream),
             {.kind = Kind::collective, .name = name, .bytes = bytes, .call = call});
}

void simulate_gpus::tell_uses(cudaStream_t stream, std::string_view name,
                              std::span<const MemoryRange> ranges) {
  tell(&Tool::uses, stream_of(stream), name, ranges);
}

void simulate_gpus::tell_inner_wait(cudaStream_t stream) {
  tell(&Tool::host_has_waited, HostWait{.stream = &stream_of(stream)});
}
