// SPDX-License-Identifier: MIT
//
// The beginning and the end of a capture, and what programs ask of it.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "capture.hpp"
#include "errors.hpp"
#include "streams.hpp"

using namespace simulate_gpus;

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
