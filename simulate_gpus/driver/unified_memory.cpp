// SPDX-License-Identifier: MIT
//
// What the driver has because all addresses are known: copies that need no kind, managed memory; and values of several bytes.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>

#include "driver/refusal.hpp"
#include "runtime/interface.hpp"

using namespace simulate_gpus;

namespace {

CUresult code_of_driver(cudaError_t code) {
  if (code != cudaSuccess) simulate_gpus::forget_refusal();
  return static_cast<CUresult>(code);
}

void* pointer_of(CUdeviceptr address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are integers
  return reinterpret_cast<void*>(address);
}

}  // namespace

extern "C" {

CUresult cuMemAllocManaged(CUdeviceptr* address, std::size_t bytes, unsigned flags) {
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return code_of_driver(cudaMallocManaged(reinterpret_cast<void**>(address), bytes, flags));
}

CUresult cuMemAllocHost(void** address, std::size_t bytes) {
  return code_of_driver(cudaMallocHost(address, bytes));
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return code_of_driver(cudaMemcpy(pointer_of(to), pointer_of(from), bytes, cudaMemcpyDefault));
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return code_of_driver(
      cudaMemcpyAsync(pointer_of(to), pointer_of(from), bytes, cudaMemcpyDefault, stream));
}

CUresult cuMemsetD16(CUdeviceptr address, unsigned short value, std::size_t count) {
  return code_of_driver(set_values(pointer_of(address), value, 2, count, nullptr, true));
}

CUresult cuMemsetD16Async(CUdeviceptr address, unsigned short value, std::size_t count,
                          CUstream stream) {
  return code_of_driver(set_values(pointer_of(address), value, 2, count, stream, false));
}

CUresult cuMemsetD32(CUdeviceptr address, unsigned value, std::size_t count) {
  return code_of_driver(set_values(pointer_of(address), value, 4, count, nullptr, true));
}

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, std::size_t count, CUstream stream) {
  return code_of_driver(set_values(pointer_of(address), value, 4, count, stream, false));
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return code_of_driver(cudaLaunchHostFunc(stream, function, data));
}
}
