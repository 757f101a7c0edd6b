// SPDX-License-Identifier: MIT
//
// Streams and events by the driver's functions: the runtime's, under other names.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "driver/refusal.hpp"

namespace {

CUresult as_drivers_code(cudaError_t code) {
  if (code != cudaSuccess) simulate_gpus::forget_refusal();
  return static_cast<CUresult>(code);
}

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return as_drivers_code(cudaStreamCreateWithFlags(stream, flags));
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return as_drivers_code(cudaStreamCreateWithPriority(stream, flags, priority));
}

CUresult cuStreamDestroy(CUstream stream) { return as_drivers_code(cudaStreamDestroy(stream)); }

CUresult cuStreamSynchronize(CUstream stream) {
  return as_drivers_code(cudaStreamSynchronize(stream));
}

CUresult cuStreamQuery(CUstream stream) { return as_drivers_code(cudaStreamQuery(stream)); }

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return as_drivers_code(cudaStreamWaitEvent(stream, event, flags));
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return as_drivers_code(cudaEventCreateWithFlags(event, flags));
}

CUresult cuEventDestroy(CUevent event) { return as_drivers_code(cudaEventDestroy(event)); }

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return as_drivers_code(cudaEventRecord(event, stream));
}

CUresult cuEventQuery(CUevent event) { return as_drivers_code(cudaEventQuery(event)); }

CUresult cuEventSynchronize(CUevent event) { return as_drivers_code(cudaEventSynchronize(event)); }

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return as_drivers_code(cudaEventElapsedTime(milliseconds, start, end));
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return as_drivers_code(cudaLaunchHostFunc(stream, function, data));
}
}
