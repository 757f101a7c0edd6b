// SPDX-License-Identifier: MIT
//
// What programs ask of a kernel, and set for it. Of LibTorch's, which are not run, nothing is known.
#include <cuda_runtime_api.h>

#include "devices.hpp"
#include "errors.hpp"
#include "program_kernel.hpp"
#include "registered_code.hpp"
#include "settings.hpp"

using namespace simulate_gpus;

namespace {

// In a dry run no kernel is read, as none is run.
CUfunc_st* known_kernel(const void* function) {
  return settings().dry_run ? nullptr : kernel_of(function);
}

// A program finds kernels of its own even where they cannot run: so the launch tells it.
template <class Action>
cudaError_t attempt(const Action& action) {
  try {
    action();
    return cudaSuccess;
  } catch (const KernelError& error) {
    const bool is_missing = error.code == cudaErrorSymbolNotFound;
    return fail(is_missing ? cudaErrorInvalidDeviceFunction : error.code, error.what());
  }
}

cudaFuncAttributes attributes_of_libtorchs() {
  cudaFuncAttributes attributes{};
  attributes.maxThreadsPerBlock = 1024;
  attributes.numRegs = 32;
  attributes.binaryVersion = attributes.ptxVersion =
      settings().gpu.major * 10 + settings().gpu.minor;
  return attributes;
}

}  // namespace

extern "C" {

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, attributes);
  SIMULATE_GPUS_NEED(cudaErrorInvalidDeviceFunction, function);
  CUfunc_st* const kernel = known_kernel(function);
  if (kernel == nullptr) {
    *attributes = attributes_of_libtorchs();
    return cudaSuccess;
  }
  return attempt([&] { *attributes = attributes_of(*kernel, current_device()); });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidDeviceFunction, function);
  CUfunc_st* const kernel = known_kernel(function);
  if (kernel == nullptr) return cudaSuccess;
  return attempt([&] { set_kernel_attribute(*kernel, attribute, value, current_device()); });
}

cudaError_t cudaFuncSetCacheConfig(const void* function, cudaFuncCache) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidDeviceFunction, function);
  return cudaSuccess;
}

cudaError_t cudaFuncGetName(const char** name, const void* function) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, name);
  CUfunc_st* const kernel = kernel_of(function);
  if (kernel == nullptr) return fail(cudaErrorInvalidDeviceFunction);
  *name = kernel->name.c_str();
  return cudaSuccess;
}

cudaError_t cudaFuncGetParamInfo(const void* function, std::size_t index, std::size_t* offset,
                                 std::size_t* bytes) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, offset);
  CUfunc_st* const kernel = kernel_of(function);
  if (kernel == nullptr) return fail(cudaErrorInvalidDeviceFunction);
  return attempt([&] {
    const ptx::Parameter found = parameter_of(*kernel, index);
    *offset = found.offset;
    if (bytes) *bytes = found.bytes;
  });
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t* found, const void* function) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, found);
  *found = kernel_of(function);
  return *found ? cudaSuccess : fail(cudaErrorInvalidDeviceFunction);
}

cudaError_t cudaGetKernel(cudaKernel_t* found, const void* function) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, found);
  CUfunc_st* const kernel = kernel_of(function);
  if (kernel == nullptr) return fail(cudaErrorInvalidDeviceFunction);
  add_kernel_handle(kernel);
  *found = reinterpret_cast<cudaKernel_t>(kernel);
  return cudaSuccess;
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t handle, cudaFuncAttribute attribute,
                                            int value, int device) {
  SIMULATE_GPUS_ENTER();
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  CUfunc_st* const kernel = kernel_of(handle);
  if (kernel == nullptr) return fail(cudaErrorInvalidResourceHandle);
  return attempt([&] { set_kernel_attribute(*kernel, attribute, value, device); });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int threads, std::size_t shared_bytes, unsigned) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, blocks);
  SIMULATE_GPUS_NEED(cudaErrorInvalidDeviceFunction, function);
  CUfunc_st* const kernel = known_kernel(function);
  if (kernel == nullptr) {
    *blocks = 2;
    return cudaSuccess;
  }
  return attempt([&] { *blocks = occupancy_of(*kernel, threads, shared_bytes, current_device()); });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int threads, std::size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                                shared_bytes, 0);
}
}
