// SPDX-License-Identifier: MIT
//
// The driver's functions that LibTorch links to and simulated GPUs do not have: kernels that a
// program compiles or loads itself. Without cuda.h: for these a name is enough.

#define SIMULATED_DRIVER_NOT_OFFERED(function) \
  extern "C" int function() { return 801; /* CUDA_ERROR_NOT_SUPPORTED */ }

SIMULATED_DRIVER_NOT_OFFERED(cuFuncGetAttribute)
SIMULATED_DRIVER_NOT_OFFERED(cuFuncSetAttribute)
SIMULATED_DRIVER_NOT_OFFERED(cuFuncSetCacheConfig)
SIMULATED_DRIVER_NOT_OFFERED(cuGetExportTable)
SIMULATED_DRIVER_NOT_OFFERED(cuLaunchCooperativeKernel)
SIMULATED_DRIVER_NOT_OFFERED(cuLaunchKernel)
SIMULATED_DRIVER_NOT_OFFERED(cuLinkAddData_v2)
SIMULATED_DRIVER_NOT_OFFERED(cuLinkComplete)
SIMULATED_DRIVER_NOT_OFFERED(cuLinkCreate_v2)
SIMULATED_DRIVER_NOT_OFFERED(cuModuleGetFunction)
SIMULATED_DRIVER_NOT_OFFERED(cuModuleLoad)
SIMULATED_DRIVER_NOT_OFFERED(cuModuleLoadData)
SIMULATED_DRIVER_NOT_OFFERED(cuModuleLoadDataEx)
SIMULATED_DRIVER_NOT_OFFERED(cuModuleUnload)
SIMULATED_DRIVER_NOT_OFFERED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
SIMULATED_DRIVER_NOT_OFFERED(cuPointerGetAttribute)
SIMULATED_DRIVER_NOT_OFFERED(cuTensorMapEncodeTiled)
