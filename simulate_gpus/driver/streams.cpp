// SPDX-License-Identifier: MIT
//
// The driver's names of streams and events, which are the runtime's.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "driver/result.hpp"

using namespace simulate_gpus;

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return result(cudaStreamCreateWithFlags(stream, flags));
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return result(cudaStreamCreateWithPriority(stream, flags, priority));
}

CUresult cuStreamDestroy(CUstream stream) { return result(cudaStreamDestroy(stream)); }

CUresult cuStreamSynchronize(CUstream stream) { return result(cudaStreamSynchronize(stream)); }

CUresult cuStreamQuery(CUstream stream) { return result(cudaStreamQuery(stream)); }

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return result(cudaStreamWaitEvent(stream, event, flags));
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* data,
                             unsigned flags) {
  // The codes that it is called with are the same.
  return result(
      cudaStreamAddCallback(stream, reinterpret_cast<cudaStreamCallback_t>(callback), data, flags));
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return result(cudaEventCreateWithFlags(event, flags));
}

CUresult cuEventDestroy(CUevent event) { return result(cudaEventDestroy(event)); }

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return result(cudaEventRecord(event, stream));
}

CUresult cuEventQuery(CUevent event) { return result(cudaEventQuery(event)); }

CUresult cuEventSynchronize(CUevent event) { return result(cudaEventSynchronize(event)); }

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return result(cudaEventElapsedTime(milliseconds, start, end));
}
}
