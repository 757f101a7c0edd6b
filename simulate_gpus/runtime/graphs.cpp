// SPDX-License-Identifier: MIT
//
// CUDA graphs: what is given to a stream while it is captured is done at each launch of the graph,
// in the order of the calls.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "counts.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "interface.hpp"
#include "streams.hpp"
#include "trace.hpp"

using namespace simulated_cuda;

struct CUgraph_st {
  std::shared_ptr<const Recording> recording;
};

struct CUgraphExec_st {
  std::shared_ptr<const Recording> recording;
};

namespace {

cudaStreamCaptureStatus status_of(const Recording* recording) {
  if (recording == nullptr) return cudaStreamCaptureStatusNone;
  return recording->is_invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  SIMULATED_CUDA_ENTER();
  static std::atomic<unsigned long long> ids = 0;
  CUstream_st& captured = stream_of(stream);
  // The default stream cannot be captured.
  if (stream == nullptr || &captured != stream || captured.recording.load()) {
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  finish_device(
      captured.device);  // captured work reads values (an index, say), which must be ready
  auto recording = std::make_shared<Recording>();
  recording->id = ++ids;
  recording->origin = stream;
  begin_capture(captured, std::move(recording));
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  SIMULATED_CUDA_ENTER();
  const auto recording = stream_of(stream).recording.load();
  *graph = nullptr;
  if (!recording) return fail(cudaErrorInvalidValue);
  if (recording->origin != stream) return fail(cudaErrorStreamCaptureUnmatched);
  end_capture(*recording);
  if (recording->is_invalid) return fail(cudaErrorStreamCaptureInvalidated);
  if (recording->is_unjoined) return fail(cudaErrorStreamCaptureUnjoined);
  *graph = new CUgraph_st{recording};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  SIMULATED_CUDA_ENTER();
  *status = status_of(stream_of(stream).recording.load().get());
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges,
                                     std::size_t* num_dependencies) {
  SIMULATED_CUDA_ENTER();
  const auto recording = stream_of(stream).recording.load();
  *status = status_of(recording.get());
  if (id) *id = recording ? recording->id : 0;
  if (graph) *graph = nullptr;
  if (dependencies) *dependencies = nullptr;
  if (edges) *edges = nullptr;
  if (num_dependencies) *num_dependencies = 0;
  return cudaSuccess;
}

// A thread's mode only decides what CUDA refuses during a capture, and nothing is refused here for
// that reason.
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  SIMULATED_CUDA_ENTER();
  static thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  std::swap(current, *mode);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long) {
  SIMULATED_CUDA_ENTER();
  *exec = new CUgraphExec_st{graph->recording};
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  SIMULATED_CUDA_ENTER();
  ++counts().graph_launches;
  for (const auto& add : exec->recording->counted) add();
  if (is_traced()) trace(stream_of(stream), "graph launch");
  submit(stream_of(stream), [recording = exec->recording] {
    for (const Work& step : recording->steps) step();
  });
  return cudaSuccess;
}

// Each step is a node; in a dry run so is what is counted in place of NVIDIA's libraries. Only the
// number of nodes is available.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  SIMULATED_CUDA_ENTER();
  if (nodes) return fail(cudaErrorNotSupported);
  *count = std::max(graph->recording->steps.size(), graph->recording->counted.size());
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  SIMULATED_CUDA_ENTER();
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  SIMULATED_CUDA_ENTER();
  delete exec;
  return cudaSuccess;
}
}
