// SPDX-License-Identifier: MIT
//
// What programs call that are built with a default stream for each thread (nvcc --default-stream per-thread). Here all
// threads share one, which orders more than a GPU would. Without CUDA's headers, and without their arguments: each is the plain
// function under another name.

#define SIMULATE_GPUS_SAME(name, plain) \
  extern "C" [[gnu::naked]] void name() { asm("jmp " #plain "@PLT"); }
#define SIMULATE_GPUS_PTSZ(function) SIMULATE_GPUS_SAME(function##_ptsz, function)
#define SIMULATE_GPUS_PTDS(function) SIMULATE_GPUS_SAME(function##_ptds, function)

SIMULATE_GPUS_PTDS(cudaMemcpy)
SIMULATE_GPUS_PTDS(cudaMemcpy2D)
SIMULATE_GPUS_PTDS(cudaMemcpy3D)
SIMULATE_GPUS_PTDS(cudaMemcpyFromSymbol)
SIMULATE_GPUS_PTDS(cudaMemcpyToSymbol)
SIMULATE_GPUS_PTDS(cudaMemset)
SIMULATE_GPUS_PTDS(cudaMemset2D)
SIMULATE_GPUS_PTDS(cudaMemset3D)
SIMULATE_GPUS_PTSZ(cudaEventRecord)
SIMULATE_GPUS_PTSZ(cudaGraphLaunch)
SIMULATE_GPUS_PTSZ(cudaLaunchCooperativeKernel)
SIMULATE_GPUS_PTSZ(cudaLaunchHostFunc)
SIMULATE_GPUS_PTSZ(cudaLaunchKernel)
SIMULATE_GPUS_PTSZ(cudaLaunchKernelExC)
SIMULATE_GPUS_PTSZ(cudaMemPrefetchAsync)
SIMULATE_GPUS_PTSZ(cudaMemcpy2DAsync)
SIMULATE_GPUS_PTSZ(cudaMemcpy3DAsync)
SIMULATE_GPUS_PTSZ(cudaMemcpyAsync)
SIMULATE_GPUS_PTSZ(cudaMemcpyFromSymbolAsync)
SIMULATE_GPUS_PTSZ(cudaMemcpyToSymbolAsync)
SIMULATE_GPUS_PTSZ(cudaMemset2DAsync)
SIMULATE_GPUS_PTSZ(cudaMemset3DAsync)
SIMULATE_GPUS_PTSZ(cudaMemsetAsync)
SIMULATE_GPUS_PTSZ(cudaStreamAddCallback)
SIMULATE_GPUS_PTSZ(cudaStreamBeginCapture)
SIMULATE_GPUS_PTSZ(cudaStreamEndCapture)
SIMULATE_GPUS_PTSZ(cudaStreamIsCapturing)
SIMULATE_GPUS_PTSZ(cudaStreamQuery)
SIMULATE_GPUS_PTSZ(cudaStreamSynchronize)
SIMULATE_GPUS_PTSZ(cudaStreamWaitEvent)
// CUDA's own name. NOLINTNEXTLINE(bugprone-reserved-identifier)
SIMULATE_GPUS_SAME(__cudaLaunchKernel_ptsz, __cudaLaunchKernel)
