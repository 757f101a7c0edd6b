// SPDX-License-Identifier: MIT
//
// CUDA graphs: what was captured is done at each launch.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>

#include "captures.hpp"
#include "errors.hpp"
#include "streams.hpp"
#include "tool.hpp"

using namespace simulate_gpus;

struct CUgraphExec_st {
  std::shared_ptr<const Recording> recording;
};

/// What a program wants to know the end of.
struct CUuserObject_st {
  void* value;
  cudaHostFn_t destroy;
  std::atomic<unsigned> owners;

  void release(unsigned count) {
    const unsigned left = owners -= count;
    if (left > 0) return;
    destroy(value);
    delete this;
  }
};

namespace {

// What was given since the step before belongs to a step.
void do_steps(const Recording& recording, CUstream_st& stream) {
  const std::span<const Captured> given = recording.given;
  std::size_t told = 0;
  const auto tell_step = [&](std::size_t end) {
    tell(&Tool::begins_step, stream, given.subspan(told, end - told));
    told = end;
  };
  for (const Step& step : recording.steps) {
    if (calls_are_watched) tell_step(step.given);
    step.submit(stream);
  }
  if (calls_are_watched) tell_step(given.size());
}

}  // namespace

extern "C" {

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* value, cudaHostFn_t destroy,
                                 unsigned owners, unsigned) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, object, destroy);
  *object = new CUuserObject_st{value, destroy, owners};
  return cudaSuccess;
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, object);
  object->release(count);
  return cudaSuccess;
}

// The graph is an owner then, and so are those that are instantiated from it.
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count,
                                      unsigned flags) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, graph, object);
  if ((flags & cudaGraphUserObjectMove) == 0) object->owners += count;
  graph->recording->objects.emplace_back(object,
                                         [count](CUuserObject_st* kept) { kept->release(count); });
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, exec, graph);
  *exec = new CUgraphExec_st{graph->recording};
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  SIMULATE_GPUS_PASS_ON();
  return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

// Nothing has to be made ready for a launch.
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, exec);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, exec);
  tell(&Tool::launched, stream_of(stream), exec->recording->given);
  for (const auto& of_tool : exec->recording->at_each_launch) of_tool(stream_of(stream));
  do_steps(*exec->recording, stream_of(stream));
  return cudaSuccess;
}

// Each step is a node; in a dry run so is what is told in place of NVIDIA's libraries. Only the
// number of nodes is available.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, graph, count);
  if (nodes) return fail(cudaErrorNotSupported);
  const auto work = std::ranges::count_if(graph->recording->given, [](const Captured& captured) {
    const Kind kind = captured.given.kind;
    return kind != Kind::event && kind != Kind::wait;
  });
  *count = std::max(graph->recording->steps.size(), static_cast<std::size_t>(work));
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, graph);
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, exec);
  delete exec;
  return cudaSuccess;
}
}
