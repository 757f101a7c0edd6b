// SPDX-License-Identifier: MIT
//
// What the driver has because all addresses are known: copies that need no kind, managed memory; and values of several bytes.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>

#include "driver/result.hpp"
#include "runtime/interface.hpp"

using namespace simulate_gpus;

extern "C" {

CUresult cuMemAllocManaged(CUdeviceptr* address, std::size_t bytes, unsigned flags) {
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return result(cudaMallocManaged(reinterpret_cast<void**>(address), bytes, flags));
}

CUresult cuMemAllocHost(void** address, std::size_t bytes) {
  return result(cudaMallocHost(address, bytes));
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return result(cudaMemcpy(pointer(to), pointer(from), bytes, cudaMemcpyDefault));
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return result(cudaMemcpyAsync(pointer(to), pointer(from), bytes, cudaMemcpyDefault, stream));
}

CUresult cuMemsetD16(CUdeviceptr address, unsigned short value, std::size_t count) {
  return result(set_values(pointer(address), value, 2, count, nullptr, true));
}

CUresult cuMemsetD16Async(CUdeviceptr address, unsigned short value, std::size_t count,
                          CUstream stream) {
  return result(set_values(pointer(address), value, 2, count, stream, false));
}

CUresult cuMemsetD32(CUdeviceptr address, unsigned value, std::size_t count) {
  return result(set_values(pointer(address), value, 4, count, nullptr, true));
}

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, std::size_t count, CUstream stream) {
  return result(set_values(pointer(address), value, 4, count, stream, false));
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return result(cudaLaunchHostFunc(stream, function, data));
}
}
