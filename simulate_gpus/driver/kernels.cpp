// SPDX-License-Identifier: MIT
//
// Launches of kernels that a program compiles or loads itself.
#include <cuda.h>

#include <cstring>
#include <span>
#include <string>

#include "driver/modules.hpp"
#include "runtime/interface.hpp"
#include "runtime/settings.hpp"

using namespace simulate_gpus;

namespace {

CUresult launch(const char* called, CUfunction function, KernelLaunch wanted, void** extra) {
  const ToldCall call(called);
  if (rehearses()) return CUDA_ERROR_NOT_SUPPORTED;
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (; extra != nullptr && extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) wanted.buffer = extra[1];
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
      wanted.buffer_bytes = *static_cast<const std::size_t*>(extra[1]);
  }
  return attempt_in_driver(
      [&] {
        if (function->device && *function->device != device_of_thread())
          throw KernelError(cudaErrorInvalidResourceHandle,
                            "the kernel's module was loaded on another GPU");
        try {
          launch_kernel(*function, wanted);
        } catch (const KernelError& error) {
          if (error.code != cudaErrorNotSupported) throw;
          throw KernelError(error.code,
                            "the CUDA kernel " + function->name.substr(0, 150) +
                                " was launched, which simulated GPUs cannot run: " + error.what());
        }
      },
      called);
}

}  // namespace

extern "C" {

// Kernels that use a description of a tensor are refused when they are launched.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void*,
                                const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  *map = {};
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** arguments, void** extra) {
  return launch(__func__, function,
                {.grid = {grid_x, grid_y, grid_z},
                 .block = {block_x, block_y, block_z},
                 .shared_bytes = shared_bytes,
                 .stream = stream,
                 .arguments = arguments},
                extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments,
                          void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KernelLaunch wanted{.grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
                      .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
                      .shared_bytes = config->sharedMemBytes,
                      .stream = config->hStream,
                      .arguments = arguments};
  for (const CUlaunchAttribute& each : std::span(config->attrs, config->numAttrs)) {
    if (each.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
      wanted.is_cooperative = each.value.cooperative != 0;
    if (settings().dry_run) continue;
    cudaLaunchAttribute attribute{};  // which is the same
    static_assert(sizeof attribute == sizeof each);
    std::memcpy(&attribute, &each, sizeof each);
    if (const std::string reason = refusal_of(attribute); !reason.empty())
      return refused_as(KernelError(cudaErrorNotSupported, reason));
  }
  return launch(__func__, function, wanted, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes, CUstream stream,
                                   void** arguments) {
  return launch(__func__, function,
                {.grid = {grid_x, grid_y, grid_z},
                 .block = {block_x, block_y, block_z},
                 .shared_bytes = shared_bytes,
                 .stream = stream,
                 .is_cooperative = true,
                 .arguments = arguments},
                nullptr);
}
}
