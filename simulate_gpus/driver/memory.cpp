// SPDX-License-Identifier: MIT
//
// The driver's names of memory and copies, which the runtime has too. Numba and TensorPipe call them.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>

#include "driver/result.hpp"
#include "runtime/interface.hpp"

using namespace simulate_gpus;

extern "C" {

CUresult cuMemGetInfo(std::size_t* free, std::size_t* total) {
  return result(cudaMemGetInfo(free, total));
}

CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return result(cudaMalloc(reinterpret_cast<void**>(address), bytes));
}

CUresult cuMemFree(CUdeviceptr address) { return result(cudaFree(pointer(address))); }

// Either of both may be left out.
CUresult cuMemGetAddressRange(CUdeviceptr* begin, std::size_t* bytes, CUdeviceptr address) {
  const AllocatedRange found = range_at(pointer(address));
  if (found.begin == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (begin) *begin = reinterpret_cast<CUdeviceptr>(found.begin);
  if (bytes) *bytes = found.bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  return result(cudaMemcpy(pointer(to), from, bytes, cudaMemcpyHostToDevice));
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  return result(cudaMemcpy(to, pointer(from), bytes, cudaMemcpyDeviceToHost));
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return result(cudaMemcpy(pointer(to), pointer(from), bytes, cudaMemcpyDeviceToDevice));
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return result(cudaMemcpyAsync(pointer(to), from, bytes, cudaMemcpyHostToDevice, stream));
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return result(cudaMemcpyAsync(to, pointer(from), bytes, cudaMemcpyDeviceToHost, stream));
}

CUresult cuMemsetD8(CUdeviceptr address, unsigned char value, std::size_t count) {
  return result(cudaMemset(pointer(address), value, count));
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, std::size_t count,
                         CUstream stream) {
  return result(cudaMemsetAsync(pointer(address), value, count, stream));
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return result(
      cudaMemcpyAsync(pointer(to), pointer(from), bytes, cudaMemcpyDeviceToDevice, stream));
}

CUresult cuMemHostAlloc(void** address, std::size_t bytes, unsigned flags) {
  return result(cudaHostAlloc(address, bytes, flags));
}

CUresult cuMemFreeHost(void* address) { return result(cudaFreeHost(address)); }

CUresult cuMemHostRegister(void* address, std::size_t bytes, unsigned flags) {
  return result(cudaHostRegister(address, bytes, flags));
}

CUresult cuMemHostUnregister(void* address) { return result(cudaHostUnregister(address)); }

CUresult cuMemHostGetDevicePointer(CUdeviceptr* on_device, void* address, unsigned flags) {
  return result(cudaHostGetDevicePointer(reinterpret_cast<void**>(on_device), address, flags));
}
}
