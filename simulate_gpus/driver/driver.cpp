// SPDX-License-Identifier: MIT
//
// Replaces NVIDIA's driver (libcuda.so.1): here devices and look-ups. The runtime does not need
// it; LibTorch asks it for contexts, and programs look functions up in it. Kernels that a program
// compiles are in kernels.cpp; all else is refused by name (not_offered.cpp).
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdio>
#include <map>
#include <string>
#include <string_view>

#include "driver/refusal.hpp"
#include "driver/result.hpp"
#include "runtime/interface.hpp"

namespace {

int num_devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

CUresult refuse(CUresult code, const std::string& reason) {
  return static_cast<CUresult>(simulate_gpus::refuse_in_driver(code, reason));
}

// Asked of the runtime.
template <class Ask>
CUresult with_properties(CUdevice device, const Ask& ask) {
  cudaDeviceProp properties;
  const cudaError_t failed = cudaGetDeviceProperties(&properties, device);
  if (failed == cudaSuccess) ask(properties);
  return simulate_gpus::result(failed);
}

// The functions of which cuda.h gives programs a newer version.
const std::map<std::string_view, const char*> k_newer = {
#include "driver_versions.inc"  // made by CMake
};

void* function_called(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  const auto newer = k_newer.find(name);
  return dlsym(driver, newer == k_newer.end() ? name : newer->second);
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

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  return with_properties(device, [&](const cudaDeviceProp& properties) {
    std::snprintf(name, static_cast<std::size_t>(size), "%s", properties.name);
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return with_properties(device,
                         [&](const cudaDeviceProp& properties) { *uuid = properties.uuid; });
}

CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice device) {
  return with_properties(
      device, [&](const cudaDeviceProp& properties) { *bytes = properties.totalGlobalMem; });
}

// The runtime's attributes have the driver's numbers, and it knows those that only the driver names.
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return simulate_gpus::result(
      cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(attribute), device));
}

// Of device memory and pinned memory.
CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  cudaPointerAttributes found;
  const void* const place = simulate_gpus::pointer(address);
  if (const cudaError_t failed = cudaPointerGetAttributes(&found, place))
    return simulate_gpus::result(failed);
  if (found.type == cudaMemoryTypeUnregistered) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(value) = address;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = found.device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = found.type;  // with the driver's numbers
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      if (const auto range = simulate_gpus::range_at(place); range.id > 0) {
        *static_cast<unsigned long long*>(value) = range.id;
        return CUDA_SUCCESS;
      }
      [[fallthrough]];
    default:
      return refuse(CUDA_ERROR_NOT_SUPPORTED,
                    simulate_gpus::not_offered("cuPointerGetAttribute of attribute " +
                                               std::to_string(attribute)));
  }
}

CUresult cuGetProcAddress(const char* name, void** function, int, cuuint64_t,
                          CUdriverProcAddressQueryResult* found) {
  *function = function_called(name);
  if (found)
    *found = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (*function || found) return CUDA_SUCCESS;
  // In silence: many look for what they can do without.
  return refuse(CUDA_ERROR_NOT_FOUND, std::string(name) + " is not offered by simulated GPUs");
}

// TensorPipe looks up the first version, which cuda.h no longer declares.
#undef cuDeviceGetUuid
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }
}
