// SPDX-License-Identifier: MIT
#include "captures.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "capture_modes.hpp"
#include "errors.hpp"
#include "interface.hpp"
#include "streams.hpp"

namespace simulate_gpus {

struct Capture : RunningCapture {
  using RunningCapture::RunningCapture;

  /// How many steps a stream has given, and how many of them another stream has waited for: at the
  /// end it must be all, except for the origin.
  struct Steps {
    std::size_t given = 0, joined = 0;
  };

  unsigned long long id = 0;
  const CUstream_st* origin = nullptr;
  std::atomic<bool> has_ended = false;
  // Guards the rest: threads of one program may fill several streams of a capture at once.
  std::mutex mutex;
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
  std::vector<Work> undo;
  std::map<const CUstream_st*, Steps> steps;
};

namespace {

// Expects the mutex.
bool is_unjoined(const Capture& capture) {
  return std::ranges::any_of(capture.steps, [&](const auto& of) {
    return of.first != capture.origin && of.second.joined < of.second.given;
  });
}

void end(Capture& capture) {
  capture.has_ended = true;
  capture.stop();
  std::vector<Work> undo;
  {
    const std::scoped_lock lock(capture.mutex);
    undo.swap(capture.undo);
  }
  for (; !undo.empty(); undo.pop_back()) undo.back()();
  for_each_stream([&](CUstream_st& stream) {
    if (stream.capture.load().get() == &capture) stream.capture.store(nullptr);
  });
}

cudaStreamCaptureStatus status_of(const Capture* capture) {
  if (capture == nullptr) return cudaStreamCaptureStatusNone;
  return capture->is_invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

}  // namespace

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

bool is_captured(const CUstream_st& stream) { return stream.capture.load() != nullptr; }

bool is_capturing_on(int device) {
  bool found = false;
  for_each_stream([&](const CUstream_st& stream) {
    found = found || (stream.device == device && is_captured(stream));
  });
  return found;
}

namespace {

// The error, which makes the stream's capture invalid; success if it is not captured.
cudaError_t invalidate(const CUstream_st& stream, cudaError_t error) {
  const auto capture = stream.capture.load();
  if (!capture) return cudaSuccess;
  capture->is_invalid = true;
  return fail(error);
}

}  // namespace

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
  capture.graph->recording->steps.push_back(
      [step = std::move(step)](CUstream_st& launched) { submit(launched, step); });
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
  capture->graph->recording->steps.push_back(
      [step = std::move(submission)](CUstream_st& launched) { step(&launched); });
  ++capture->steps[&stream].given;
}

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  SIMULATE_GPUS_ENTER();
  static std::atomic<unsigned long long> ids = 0;
  CUstream_st& stream = stream_of(handle);
  if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed)
    return fail(cudaErrorInvalidValue);
  if (stream.is_default()) return fail(cudaErrorStreamCaptureUnsupported);
  if (is_captured(stream)) return fail(cudaErrorIllegalState);
  // Captured work reads values (an index, say), which must be ready.
  finish_device(stream.device);
  const auto capture = std::make_shared<Capture>(mode);
  capture->id = ++ids;
  capture->origin = &stream;
  stream.capture.store(capture);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, graph);
  const auto capture = stream_of(stream).capture.load();
  *graph = nullptr;
  if (!capture) return fail(cudaErrorIllegalState);
  if (capture->origin != stream)
    return invalidate(stream_of(stream), cudaErrorStreamCaptureUnmatched);
  end(*capture);
  if (capture->is_invalid) return fail(cudaErrorStreamCaptureInvalidated);
  const std::scoped_lock lock(capture->mutex);
  if (is_unjoined(*capture)) return fail(cudaErrorStreamCaptureUnjoined);
  *graph = capture->graph.release();
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, status);
  *status = status_of(stream_of(stream).capture.load().get());
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges,
                                     std::size_t* num_dependencies) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, status);
  const auto capture = stream_of(stream).capture.load();
  *status = status_of(capture.get());
  if (id) *id = capture ? capture->id : 0;
  if (graph) *graph = capture ? capture->graph.get() : nullptr;
  if (dependencies) *dependencies = nullptr;
  if (edges) *edges = nullptr;
  if (num_dependencies) *num_dependencies = 0;
  return cudaSuccess;
}
}
