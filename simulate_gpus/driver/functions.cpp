// SPDX-License-Identifier: MIT
//
// What programs ask of a kernel, and set for it.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "driver/modules.hpp"
#include "runtime/gpu_profiles.hpp"
#include "runtime/settings.hpp"

using namespace simulate_gpus;

namespace {

int value_of(CUfunction_attribute attribute, const cudaFuncAttributes& attributes) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return attributes.maxThreadsPerBlock;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      return static_cast<int>(attributes.sharedSizeBytes);
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      return static_cast<int>(attributes.constSizeBytes);
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      return static_cast<int>(attributes.localSizeBytes);
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      return attributes.numRegs;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      return attributes.ptxVersion;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      return attributes.binaryVersion;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return attributes.maxDynamicSharedSizeBytes;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return attributes.preferredShmemCarveout;
    default:  // of caches and clusters
      return 0;
  }
}

// In a dry run no kernel is read.
cudaFuncAttributes attributes_without_reading() {
  cudaFuncAttributes attributes{};
  attributes.maxThreadsPerBlock = 1024;
  attributes.numRegs = 32;
  return attributes;
}

void check_device(int device) {
  int count = 0;
  static_cast<void>(cudaGetDeviceCount(&count));
  if (device < 0 || device >= count) throw KernelError(cudaErrorInvalidDevice);
}

CUresult get_attribute(int* value, CUfunction_attribute attribute, CUfunction function,
                       int device) {
  if (value == nullptr || attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX)
    return CUDA_ERROR_INVALID_VALUE;
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return attempt_in_driver([&] {
    check_device(device);
    *value = value_of(attribute, settings().dry_run ? attributes_without_reading()
                                                    : attributes_of(*function, device));
  });
}

CUresult set_attribute(CUfunction function, CUfunction_attribute attribute, int value, int device) {
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (settings().dry_run) return CUDA_SUCCESS;
  return attempt_in_driver([&] {
    check_device(device);
    set_kernel_attribute(*function, attribute, value, device);
  });
}

}  // namespace

extern "C" {

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  return get_attribute(value, attribute, function, device_of_thread());
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel,
                              CUdevice device) {
  return get_attribute(value, attribute, reinterpret_cast<CUfunction>(kernel), device);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return set_attribute(function, attribute, value, device_of_thread());
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                              CUdevice device) {
  return set_attribute(reinterpret_cast<CUfunction>(kernel), attribute, value, device);
}

CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }

CUresult cuFuncGetName(const char** name, CUfunction function) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = function->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset,
                            std::size_t* bytes) {
  if (offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return attempt_in_driver([&] {
    const ptx::Parameter found = parameter_of(*function, index);
    *offset = found.offset;
    if (bytes) *bytes = found.bytes;
  });
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction) {
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction) { return CUDA_SUCCESS; }

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function,
                                                              int threads, std::size_t shared_bytes,
                                                              unsigned) {
  if (blocks == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (settings().dry_run) {
    *blocks = 2;
    return CUDA_SUCCESS;
  }
  return attempt_in_driver(
      [&] { *blocks = occupancy_of(*function, threads, shared_bytes, device_of_thread()); });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     std::size_t shared_bytes) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                              shared_bytes, 0);
}

// The largest block of those that fill a multiprocessor, as the runtime's header computes it.
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* least_blocks, int* threads,
                                                   CUfunction function,
                                                   CUoccupancyB2DSize shared_bytes_of,
                                                   std::size_t shared_bytes, int most_threads,
                                                   unsigned) {
  if (least_blocks == nullptr || threads == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return attempt_in_driver([&] {
    const int device = device_of_thread();
    int most = settings().dry_run ? 1024 : attributes_of(*function, device).maxThreadsPerBlock;
    if (most_threads > 0 && most_threads < most) most = most_threads;
    int best = 0, best_blocks = 0;
    for (int size = most; size > 0; size = (size - 1) / 32 * 32) {
      const std::size_t bytes = shared_bytes_of ? shared_bytes_of(size) : shared_bytes;
      const int blocks = settings().dry_run ? 2 : occupancy_of(*function, size, bytes, device);
      if (blocks * size > best * best_blocks) {
        best = size;
        best_blocks = blocks;
      }
      if (settings().dry_run) break;
    }
    *threads = best;
    *least_blocks = best_blocks * settings().gpu.multiprocessors;
  });
}

CUresult cuOccupancyMaxPotentialBlockSize(int* least_blocks, int* threads, CUfunction function,
                                          CUoccupancyB2DSize shared_bytes_of,
                                          std::size_t shared_bytes, int most_threads) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(least_blocks, threads, function, shared_bytes_of,
                                                   shared_bytes, most_threads, 0);
}
}
