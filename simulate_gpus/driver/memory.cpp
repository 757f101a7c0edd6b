// SPDX-License-Identifier: MIT
//
// Memory by the driver's functions: the runtime's, under other names.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "driver/refusal.hpp"

namespace {

CUresult as_driver(cudaError_t code) {
  if (code != cudaSuccess) simulate_gpus::forget_refusal();
  return static_cast<CUresult>(code);
}

void* pointer(CUdeviceptr address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are integers
  return reinterpret_cast<void*>(address);
}

CUresult allocated(CUdeviceptr* address, cudaError_t code, void* made) {
  if (code == cudaSuccess) *address = reinterpret_cast<CUdeviceptr>(made);
  return as_driver(code);
}

// A value of several bytes cannot be set by cudaMemset, so it is copied from the host.
template <class Value>
CUresult set_values(CUdeviceptr address, Value value, std::size_t count, CUstream stream,
                    bool waits) {
  const std::vector<Value> values(count, value);
  const std::size_t bytes = count * sizeof(Value);
  return as_driver(
      waits ? cudaMemcpy(pointer(address), values.data(), bytes, cudaMemcpyDefault)
            : cudaMemcpyAsync(pointer(address), values.data(), bytes, cudaMemcpyDefault, stream));
}

}  // namespace

extern "C" {

CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* made = nullptr;
  const cudaError_t code = cudaMalloc(&made, bytes);
  return allocated(address, code, made);
}

CUresult cuMemAllocManaged(CUdeviceptr* address, std::size_t bytes, unsigned flags) {
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  void* made = nullptr;
  const cudaError_t code = cudaMallocManaged(&made, bytes, flags);
  return allocated(address, code, made);
}

CUresult cuMemFree(CUdeviceptr address) { return as_driver(cudaFree(pointer(address))); }

CUresult cuMemHostAlloc(void** address, std::size_t bytes, unsigned flags) {
  return as_driver(cudaHostAlloc(address, bytes, flags));
}

CUresult cuMemAllocHost(void** address, std::size_t bytes) {
  return as_driver(cudaMallocHost(address, bytes));
}

CUresult cuMemFreeHost(void* address) { return as_driver(cudaFreeHost(address)); }

CUresult cuMemHostGetDevicePointer(CUdeviceptr* address, void* of_host, unsigned flags) {
  void* found = nullptr;
  const cudaError_t code = cudaHostGetDevicePointer(&found, of_host, flags);
  return allocated(address, code, found);
}

CUresult cuMemHostRegister(void* address, std::size_t bytes, unsigned flags) {
  return as_driver(cudaHostRegister(address, bytes, flags));
}

CUresult cuMemHostUnregister(void* address) { return as_driver(cudaHostUnregister(address)); }

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  return as_driver(cudaMemcpy(pointer(to), from, bytes, cudaMemcpyHostToDevice));
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  return as_driver(cudaMemcpy(to, pointer(from), bytes, cudaMemcpyDeviceToHost));
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return as_driver(cudaMemcpy(pointer(to), pointer(from), bytes, cudaMemcpyDeviceToDevice));
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return as_driver(cudaMemcpy(pointer(to), pointer(from), bytes, cudaMemcpyDefault));
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return as_driver(cudaMemcpyAsync(pointer(to), from, bytes, cudaMemcpyHostToDevice, stream));
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return as_driver(cudaMemcpyAsync(to, pointer(from), bytes, cudaMemcpyDeviceToHost, stream));
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return as_driver(
      cudaMemcpyAsync(pointer(to), pointer(from), bytes, cudaMemcpyDeviceToDevice, stream));
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return as_driver(cudaMemcpyAsync(pointer(to), pointer(from), bytes, cudaMemcpyDefault, stream));
}

CUresult cuMemsetD8(CUdeviceptr address, unsigned char value, std::size_t count) {
  return as_driver(cudaMemset(pointer(address), value, count));
}

CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, std::size_t count,
                         CUstream stream) {
  return as_driver(cudaMemsetAsync(pointer(address), value, count, stream));
}

CUresult cuMemsetD16(CUdeviceptr address, unsigned short value, std::size_t count) {
  return set_values(address, value, count, nullptr, true);
}

CUresult cuMemsetD16Async(CUdeviceptr address, unsigned short value, std::size_t count,
                          CUstream stream) {
  return set_values(address, value, count, stream, false);
}

CUresult cuMemsetD32(CUdeviceptr address, unsigned value, std::size_t count) {
  return set_values(address, value, count, nullptr, true);
}

CUresult cuMemsetD32Async(CUdeviceptr address, unsigned value, std::size_t count, CUstream stream) {
  return set_values(address, value, count, stream, false);
}
}
