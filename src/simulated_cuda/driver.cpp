// SPDX-License-Identifier: MIT
//
// Replaces NVIDIA's driver (libcuda.so.1): the functions that LibTorch links to. The runtime does
// not need it; LibTorch queries its contexts, and uses it to load kernels that it compiled, which
// is refused.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "runtime/interface.hpp"

namespace {

// All devices share one context, which is never read.
CUcontext context() {
  static char place;
  return reinterpret_cast<CUcontext>(&place);
}

int num_devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return num_devices() > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }

CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = num_devices();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (ordinal < 0 || ordinal >= num_devices()) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

// No driver features beyond the runtime: virtual memory, fabric, multicast ...
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 0;
  return CUDA_SUCCESS;
}

// In a dry run LibTorch calls this only before it compiles a kernel, as for elementwise operations
// on complex numbers. That needs a real GPU.
CUresult cuCtxGetCurrent(CUcontext* current) {
  if (simulated_cuda_is_dry_run()) return CUDA_ERROR_NOT_SUPPORTED;
  *current = simulated_cuda_thread_has_context() ? context() : nullptr;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  *active = simulated_cuda_has_context(device) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* retained, CUdevice) {
  *retained = context();
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_SUCCESS
              ? "no error"
              : "not offered by simulated GPUs, which compile and load no kernels";
  return CUDA_SUCCESS;
}
}
