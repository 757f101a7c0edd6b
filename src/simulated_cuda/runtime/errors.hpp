// SPDX-License-Identifier: MIT
//
// How each of the runtime's functions begins and fails.
#pragma once

#include <driver_types.h>

#include <string>

namespace use_gpu::simulated_cuda {

/// Remembers an error for cudaGetLastError, in this thread, and returns it. `detail` is appended to
/// what cudaGetErrorString says of the code in this thread, until the next error.
cudaError_t fail(cudaError_t code, const std::string& detail = {});

/// Success, unless the program asked for a fault of this call, or the process was forked by one
/// that used a GPU. To be called first, with the function's own name.
cudaError_t enter(const char* function);

/// Refuses a launch. LibTorch does not look at the error of every launch; one that nobody has asked
/// for is the answer of the next operation, copy or synchronization, so that nobody reads a value
/// that was not computed.
cudaError_t refuse_launch(const std::string& kernel);
cudaError_t unreported_refusal();

/// From now on a child of fork cannot use CUDA: this process has.
void note_use();

}  // namespace use_gpu::simulated_cuda

/// How each function of the runtime begins.
#define SIMULATED_CUDA_ENTER()                                                            \
  if (const cudaError_t refused = use_gpu::simulated_cuda::enter(__func__); refused != 0) \
  return use_gpu::simulated_cuda::fail(refused)
