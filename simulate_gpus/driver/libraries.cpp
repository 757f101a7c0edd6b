// SPDX-License-Identifier: MIT
//
// Libraries of kernels, which belong to no context: here modules, of all devices.
#include <cuda.h>

#include "driver/modules.hpp"

using namespace simulate_gpus;

namespace {

CUmodule module_of(CUlibrary library) { return reinterpret_cast<CUmodule>(library); }
CUfunction function_of(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

}  // namespace

extern "C" {

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* options,
                           void** values, unsigned count, CUlibraryOption*, void**, unsigned) {
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUmodule module = nullptr;
  const CUresult failed = cuModuleLoadDataEx(&module, code, count, options, values);
  if (module != nullptr) module->device.reset();
  *library = reinterpret_cast<CUlibrary>(module);
  return failed;
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* name, CUjit_option*, void**,
                               unsigned, CUlibraryOption*, void**, unsigned) {
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUmodule module = nullptr;
  const CUresult failed = cuModuleLoad(&module, name);
  if (module != nullptr) module->device.reset();
  *library = reinterpret_cast<CUlibrary>(module);
  return failed;
}

CUresult cuLibraryUnload(CUlibrary library) { return cuModuleUnload(module_of(library)); }

CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = module_of(library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  return cuModuleGetFunction(reinterpret_cast<CUfunction*>(kernel), module_of(library), name);
}

CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary library) {
  return cuModuleGetFunctionCount(count, module_of(library));
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned count, CUlibrary library) {
  return cuModuleEnumerateFunctions(reinterpret_cast<CUfunction*>(kernels), count,
                                    module_of(library));
}

CUresult cuLibraryGetGlobal(CUdeviceptr* address, std::size_t* bytes, CUlibrary library,
                            const char* name) {
  return cuModuleGetGlobal(address, bytes, module_of(library), name);
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *function = function_of(kernel);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  return cuFuncGetName(name, function_of(kernel));
}

CUresult cuKernelGetParamInfo(CUkernel kernel, std::size_t index, std::size_t* offset,
                              std::size_t* bytes) {
  return cuFuncGetParamInfo(function_of(kernel), index, offset, bytes);
}

CUresult cuKernelSetCacheConfig(CUkernel, CUfunc_cache, CUdevice) { return CUDA_SUCCESS; }
}
