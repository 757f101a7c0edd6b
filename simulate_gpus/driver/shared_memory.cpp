// SPDX-License-Identifier: MIT
//
// The driver's names of CUDA IPC, whose handles are the runtime's.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "driver/result.hpp"

using namespace simulate_gpus;

static_assert(sizeof(CUipcMemHandle) == sizeof(cudaIpcMemHandle_t));
static_assert(sizeof(CUipcEventHandle) == sizeof(cudaIpcEventHandle_t));

extern "C" {

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  return result(
      cudaIpcGetMemHandle(reinterpret_cast<cudaIpcMemHandle_t*>(handle), pointer(address)));
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  cudaIpcMemHandle_t same;
  std::memcpy(&same, &handle, sizeof same);
  return result(cudaIpcOpenMemHandle(reinterpret_cast<void**>(address), same, flags));
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  return result(cudaIpcCloseMemHandle(pointer(address)));
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  return result(cudaIpcGetEventHandle(reinterpret_cast<cudaIpcEventHandle_t*>(handle), event));
}

CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  cudaIpcEventHandle_t same;
  std::memcpy(&same, &handle, sizeof same);
  return result(cudaIpcOpenEventHandle(event, same));
}
}
