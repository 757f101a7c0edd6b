// SPDX-License-Identifier: MIT
//
// What LibTorch 2.11 to 2.15 link to and simulated GPUs do not have: memory pools of the driver,
// memory shared between processes, managed memory, graphs that are built by hand, kernels loaded
// from files. CUDA's own headers are left out: for these a name is enough.
#include <driver_types.h>

#include "errors.hpp"

#define SIMULATED_CUDA_NOT_OFFERED(function)                                    \
  extern "C" cudaError_t function() {                                           \
    SIMULATED_CUDA_ENTER();                                                     \
    return simulated_cuda::fail(cudaErrorNotSupported,                          \
                                #function " is not offered by simulated GPUs"); \
  }

SIMULATED_CUDA_NOT_OFFERED(cudaDeviceGetDefaultMemPool)
SIMULATED_CUDA_NOT_OFFERED(cudaDeviceGetGraphMemAttribute)
SIMULATED_CUDA_NOT_OFFERED(cudaDeviceSetGraphMemAttribute)
SIMULATED_CUDA_NOT_OFFERED(cudaFreeAsync)
SIMULATED_CUDA_NOT_OFFERED(cudaGetSymbolAddress)
SIMULATED_CUDA_NOT_OFFERED(cudaGraphAddNode)
SIMULATED_CUDA_NOT_OFFERED(cudaGraphConditionalHandleCreate)
SIMULATED_CUDA_NOT_OFFERED(cudaGraphDebugDotPrint)
SIMULATED_CUDA_NOT_OFFERED(cudaGraphInstantiate)
SIMULATED_CUDA_NOT_OFFERED(cudaGraphNodeGetDependencies)
SIMULATED_CUDA_NOT_OFFERED(cudaIpcCloseMemHandle)
SIMULATED_CUDA_NOT_OFFERED(cudaIpcGetEventHandle)
SIMULATED_CUDA_NOT_OFFERED(cudaIpcGetMemHandle)
SIMULATED_CUDA_NOT_OFFERED(cudaIpcOpenEventHandle)
SIMULATED_CUDA_NOT_OFFERED(cudaIpcOpenMemHandle)
SIMULATED_CUDA_NOT_OFFERED(cudaKernelSetAttributeForDevice)
SIMULATED_CUDA_NOT_OFFERED(cudaLibraryGetGlobal)
SIMULATED_CUDA_NOT_OFFERED(cudaLibraryGetKernel)
SIMULATED_CUDA_NOT_OFFERED(cudaLibraryGetKernelCount)
SIMULATED_CUDA_NOT_OFFERED(cudaLibraryGetManaged)
SIMULATED_CUDA_NOT_OFFERED(cudaLibraryGetUnifiedFunction)
SIMULATED_CUDA_NOT_OFFERED(cudaLibraryLoadData)
SIMULATED_CUDA_NOT_OFFERED(cudaLibraryLoadFromFile)
SIMULATED_CUDA_NOT_OFFERED(cudaLibraryUnload)
SIMULATED_CUDA_NOT_OFFERED(cudaMallocAsync)
SIMULATED_CUDA_NOT_OFFERED(cudaMallocManaged)
SIMULATED_CUDA_NOT_OFFERED(cudaMemPoolGetAttribute)
SIMULATED_CUDA_NOT_OFFERED(cudaMemPoolSetAccess)
SIMULATED_CUDA_NOT_OFFERED(cudaMemPoolSetAttribute)
SIMULATED_CUDA_NOT_OFFERED(cudaMemPoolTrimTo)
SIMULATED_CUDA_NOT_OFFERED(cudaStreamBeginCaptureToGraph)
SIMULATED_CUDA_NOT_OFFERED(cudaStreamUpdateCaptureDependencies)
