// SPDX-License-Identifier: MIT
//
// What a program asks of a stream that it was given.
#include <cuda_runtime_api.h>

#include "errors.hpp"
#include "settings.hpp"
#include "streams.hpp"

using namespace simulate_gpus;

extern "C" {

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, priority);
  *priority = stream_of(stream).priority;
  return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, flags);
  const CUstream_st& found = stream_of(stream);
  *flags = found.is_default() || found.waits_for_default_stream ? cudaStreamDefault
                                                                : cudaStreamNonBlocking;
  return cudaSuccess;
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, device);
  *device = stream_of(stream).device;
  return cudaSuccess;
}

// Unique in the process, also after streams have ended; first those of the default streams.
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, id);
  const CUstream_st& found = stream_of(stream);
  *id = static_cast<unsigned long long>(found.is_default() ? found.device
                                                           : k_most_gpus + found.number);
  return cudaSuccess;
}
}
