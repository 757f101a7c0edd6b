// SPDX-License-Identifier: MIT
//
// CUDA kernels. Their code is for a GPU, so none can run here. In a dry run each launch is counted;
// otherwise it is an error that names the kernel, never a wrong value: the operations that can be
// computed were replaced (kernels/) and do not come here.
#include "launches.hpp"

#include <cuda_runtime_api.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "errors.hpp"
#include "rehearsal.hpp"
#include "settings.hpp"
#include "streams.hpp"
#include "tool.hpp"

namespace simulate_gpus {
namespace {

struct Kernel {
  const void* function;
  const char* name;  // in the program's own memory
};

struct Kernels {
  std::mutex mutex;
  std::vector<Kernel> registered;
};

Kernels& kernels() {
  static auto* const kernels = new Kernels;
  return *kernels;
}

}  // namespace

std::string kernel_name(const void* function) {
  const char* const compiled = compiled_name(function);
  if (compiled == nullptr) return "(unknown)";
  const std::unique_ptr<char, decltype(&std::free)> readable(
      abi::__cxa_demangle(compiled, nullptr, nullptr, nullptr), &std::free);
  std::string name = readable ? readable.get() : compiled;
  // Without the long template arguments.
  if (name.starts_with("void ")) name.erase(0, 5);
  return name.substr(0, std::min(name.find('<'), std::size_t{200}));
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

const char* simulate_gpus::compiled_name(const void* kernel) {
  const std::scoped_lock lock(kernels().mutex);
  const auto found = std::ranges::find(kernels().registered, kernel, &Kernel::function);
  return found == kernels().registered.end() ? nullptr : found->name;
}

namespace {

LaunchSize size_of(dim3 grid, dim3 block, std::size_t shared_bytes) {
  return {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes};
}

cudaError_t launch(const void* function, const LaunchSize& size, cudaStream_t stream) {
  if (rehearses()) return cudaSuccess;
  if (settings().dry_run) {
    tell_given(stream_of(stream), {.kind = Kind::operation, .kernel = function, .size = size});
    submit(stream_of(stream), [] {});
    return cudaSuccess;
  }
  const std::string name = kernel_name(function);
  if (!name.ends_with("spin_kernel(long)")) return refuse_launch(name);
  submit(stream_of(stream), [] {});  // at::cuda::sleep: it only waits
  return cudaSuccess;
}

struct CallConfiguration {
  dim3 grid, block;
  std::size_t shared_bytes;
  cudaStream_t stream;
};
thread_local CallConfiguration configuration;

}  // namespace

// CUDA's own names begin with two underscores. NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
char __cudaInitModule(void**) { return 0; }

void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  const std::scoped_lock lock(kernels().mutex);
  kernels().registered.push_back({function, name});
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes,
                                     cudaStream_t stream) {
  configuration = {grid, block, shared_bytes, stream};
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes,
                                       void* stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared_bytes = configuration.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void**,
                             std::size_t shared_bytes, cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidDeviceFunction, function);
  return launch(function, size_of(grid, block, shared_bytes), stream);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared_bytes, cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void**) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, config);
  SIMULATE_GPUS_NEED(cudaErrorInvalidDeviceFunction, function);
  return launch(function, size_of(config->gridDim, config->blockDim, config->dynamicSmemBytes),
                config->stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void**,
                                        std::size_t shared_bytes, cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidDeviceFunction, function);
  return launch(function, size_of(grid, block, shared_bytes), stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, attributes);
  SIMULATE_GPUS_NEED(cudaErrorInvalidDeviceFunction, function);
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion =
      settings().gpu.major * 10 + settings().gpu.minor;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute, int) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidDeviceFunction, function);
  return cudaSuccess;
}

cudaError_t cudaFuncSetCacheConfig(const void* function, cudaFuncCache) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidDeviceFunction, function);
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                   const void* function, int,
                                                                   std::size_t, unsigned) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, blocks);
  SIMULATE_GPUS_NEED(cudaErrorInvalidDeviceFunction, function);
  *blocks = 2;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int threads, std::size_t shared_bytes) {
  SIMULATE_GPUS_PASS_ON();
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                                shared_bytes, 0);
}

// Constants of kernels: not read in a dry run.
cudaError_t cudaMemcpyToSymbol(const void*, const void*, std::size_t, std::size_t, cudaMemcpyKind) {
  SIMULATE_GPUS_ENTER();
  return cudaSuccess;
}
}
// NOLINTEND(bugprone-reserved-identifier)
