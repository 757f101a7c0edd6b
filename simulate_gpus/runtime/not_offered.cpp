// SPDX-License-Identifier: MIT
//
// What LibTorch 2.11 to 2.15 link to and simulated GPUs do not have: memory pools of the driver,
// memory shared between processes, managed memory, graphs that are built by hand, kernels loaded
// from files. CUDA's own headers are left out: for these a name is enough.
#include <driver_types.h>

#include "errors.hpp"

#define SIMULATE_GPUS_NOT_OFFERED(function)                                    \
  extern "C" cudaError_t function() {                                          \
    SIMULATE_GPUS_ENTER();                                                     \
    return simulate_gpus::fail(cudaErrorNotSupported,                          \
                               #function " is not offered by simulated GPUs"); \
  }

SIMULATE_GPUS_NOT_OFFERED(cudaDeviceGetDefaultMemPool)
SIMULATE_GPUS_NOT_OFFERED(cudaDeviceGetGraphMemAttribute)
SIMULATE_GPUS_NOT_OFFERED(cudaDeviceSetGraphMemAttribute)
SIMULATE_GPUS_NOT_OFFERED(cudaFreeAsync)
SIMULATE_GPUS_NOT_OFFERED(cudaGetSymbolAddress)
SIMULATE_GPUS_NOT_OFFERED(cudaGraphAddNode)
SIMULATE_GPUS_NOT_OFFERED(cudaGraphConditionalHandleCreate)
SIMULATE_GPUS_NOT_OFFERED(cudaGraphDebugDotPrint)
SIMULATE_GPUS_NOT_OFFERED(cudaGraphInstantiate)
SIMULATE_GPUS_NOT_OFFERED(cudaGraphNodeGetDependencies)
SIMULATE_GPUS_NOT_OFFERED(cudaIpcCloseMemHandle)
SIMULATE_GPUS_NOT_OFFERED(cudaIpcGetEventHandle)
SIMULATE_GPUS_NOT_OFFERED(cudaIpcGetMemHandle)
SIMULATE_GPUS_NOT_OFFERED(cudaIpcOpenEventHandle)
SIMULATE_GPUS_NOT_OFFERED(cudaIpcOpenMemHandle)
SIMULATE_GPUS_NOT_OFFERED(cudaKernelSetAttributeForDevice)
SIMULATE_GPUS_NOT_OFFERED(cudaLibraryGetGlobal)
SIMULATE_GPUS_NOT_OFFERED(cudaLibraryGetKernel)
SIMULATE_GPUS_NOT_OFFERED(cudaLibraryGetKernelCount)
SIMULATE_GPUS_NOT_OFFERED(cudaLibraryGetManaged)
SIMULATE_GPUS_NOT_OFFERED(cudaLibraryGetUnifiedFunction)
SIMULATE_GPUS_NOT_OFFERED(cudaLibraryLoadData)
SIMULATE_GPUS_NOT_OFFERED(cudaLibraryLoadFromFile)
SIMULATE_GPUS_NOT_OFFERED(cudaLibraryUnload)
SIMULATE_GPUS_NOT_OFFERED(cudaMallocAsync)
SIMULATE_GPUS_NOT_OFFERED(cudaMallocManaged)
SIMULATE_GPUS_NOT_OFFERED(cudaMemPoolGetAttribute)
SIMULATE_GPUS_NOT_OFFERED(cudaMemPoolSetAccess)
SIMULATE_GPUS_NOT_OFFERED(cudaMemPoolSetAttribute)
SIMULATE_GPUS_NOT_OFFERED(cudaMemPoolTrimTo)
SIMULATE_GPUS_NOT_OFFERED(cudaStreamBeginCaptureToGraph)
SIMULATE_GPUS_NOT_OFFERED(cudaStreamUpdateCaptureDependencies)
