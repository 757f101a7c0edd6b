// SPDX-License-Identifier: MIT
//
// Functions of the program that a stream calls. A program that has one called waits for that call,
// not for the stream (TensorPipe does), so a thread waits for the stream in its place.
#include <cuda_runtime_api.h>

#include <functional>
#include <system_error>
#include <thread>

#include "errors.hpp"
#include "interface.hpp"
#include "streams.hpp"
#include "tool.hpp"

using namespace simulate_gpus;

namespace {

void give(CUstream_st& stream, const Work& call) {
  moment_after(stream);  // the stream waits for all that it has to wait for
  Notes notes;
  tell(&Tool::note, stream, notes);
  submit(stream, [call, notes] {
    tell(&Tool::host_has_waited, HostWait{.event = &notes});
    call();
  });
}

cudaError_t call_in(CUstream_st& stream, const Work& call) {
  give(stream, call);
  try {  // the queue outlives the stream
    std::thread([moment = Moment{stream.queue, stream.queue->end()}] { moment.finish(); }).detach();
    return cudaSuccess;
  } catch (const std::system_error&) {
    return fail(cudaErrorMemoryAllocation, "no thread could be made that calls the function");
  }
}

}  // namespace

extern "C" {

// A graph calls the function, the capture does not.
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, function);
  CUstream_st& stream = stream_of(handle);
  const Work call = [=] { function(data); };
  if (is_captured(stream)) {
    record_submission(handle, [call](cudaStream_t launched) { give(*launched, call); });
    return cudaSuccess;
  }
  return call_in(stream, call);
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned flags) {
  SIMULATE_GPUS_ENTER();
  if (callback == nullptr || flags != 0) return fail(cudaErrorInvalidValue);
  if (is_captured(stream_of(stream))) return fail(cudaErrorStreamCaptureUnsupported);
  return call_in(stream_of(stream), [=] { callback(stream, cudaSuccess, data); });
}
}
