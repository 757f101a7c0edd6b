// SPDX-License-Identifier: MIT
//
// Kernels that a program compiles or loads itself: by NVRTC, Triton, from a file. Any binary is
// loaded, unread. The launch is refused by the kernel's name; in a dry run it is counted.
#include <cuda.h>

#include <deque>
#include <mutex>
#include <string>

#include "driver/refusal.hpp"
#include "runtime/given.hpp"
#include "runtime/interface.hpp"
#include "runtime/settings.hpp"

using namespace simulate_gpus;

struct CUfunc_st {
  std::string name;
};

struct CUmod_st {
  std::mutex mutex;
  std::deque<CUfunc_st> functions;  // which stay where they are
};

namespace {

CUresult load(CUmodule* module) {
  *module = new CUmod_st;
  return CUDA_SUCCESS;
}

CUresult launch(const char* called, CUfunction function, const LaunchSize& size, CUstream stream) {
  const ToldCall call(called);
  if (rehearses()) return CUDA_ERROR_NOT_SUPPORTED;
  if (settings().dry_run) {
    tell_kernel(stream, function->name, size);
    submit(stream, [] {});
    return CUDA_SUCCESS;
  }
  return static_cast<CUresult>(refuse_in_driver(
      CUDA_ERROR_NOT_SUPPORTED,
      "the CUDA kernel " + function->name.substr(0, 200) +
          " was launched, which simulated GPUs cannot run. It was compiled while the program runs "
          "(by LibTorch, NVRTC or Triton, say) or loaded from a file; see "
          "simulate_gpus/README.md"));
}

}  // namespace

extern "C" {

CUresult cuModuleLoad(CUmodule* module, const char*) { return load(module); }
CUresult cuModuleLoadData(CUmodule* module, const void*) { return load(module); }
CUresult cuModuleLoadDataEx(CUmodule* module, const void*, unsigned, CUjit_option*, void**) {
  return load(module);
}

CUresult cuModuleUnload(CUmodule module) {
  delete module;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const std::scoped_lock lock(module->mutex);
  *function = &module->functions.emplace_back(CUfunc_st{name});
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction) {
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
           : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS            ? 32
                                                                : 0;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, std::size_t) {
  *blocks = 2;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void**, void**) {
  const LaunchSize size{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
  return launch(__func__, function, size, stream);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void**, void**) {
  const LaunchSize size{{config->gridDimX, config->gridDimY, config->gridDimZ},
                        {config->blockDimX, config->blockDimY, config->blockDimZ},
                        config->sharedMemBytes};
  return launch(__func__, function, size, config->hStream);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes, CUstream stream,
                                   void**) {
  const LaunchSize size{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
  return launch(__func__, function, size, stream);
}
}
