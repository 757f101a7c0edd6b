// SPDX-License-Identifier: MIT
//
// Launches of CUDA kernels. Those that the program brought as PTX run (kernel_launches.cpp). LibTorch's are machine code: in a dry
// run each launch is counted; otherwise it is an error that names the kernel, never a wrong value: the
// operations that can be computed were replaced (kernels/) and do not come here.
#include "launches.hpp"

#include <cuda_runtime_api.h>

#include <exception>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "errors.hpp"
#include "program_kernel.hpp"
#include "registered_code.hpp"
#include "rehearsal.hpp"
#include "settings.hpp"
#include "streams.hpp"
#include "tool.hpp"

using namespace simulate_gpus;

namespace {

cudaError_t launch_libtorchs(const void* function, cudaStream_t stream) {
  const std::string name = kernel_name(function);
  if (!name.ends_with("spin_kernel(long)"))
    return refuse_launch(name,
                         ". They only compute what LibTorch also has for the CPU; see "
                         "simulate_gpus/README.md");
  submit(stream_of(stream), [] {});  // at::cuda::sleep: it only waits
  return cudaSuccess;
}

cudaError_t launch(const void* function, const KernelLaunch& wanted) {
  const LaunchSize size{wanted.grid, wanted.block, wanted.shared_bytes};
  const Given given{.kind = Kind::operation, .kernel = function, .size = size};
  if (rehearses()) {
    note_given(given);
    return cudaSuccess;
  }
  if (settings().dry_run) {
    tell_given(stream_of(wanted.stream), given);
    submit(stream_of(wanted.stream), [] {});
    return cudaSuccess;
  }
  CUfunc_st* const kernel = kernel_of(function);
  if (kernel == nullptr) return launch_libtorchs(function, wanted.stream);
  if (const cudaError_t refused = unreported_refusal()) return refused;
  try {
    launch_kernel(*kernel, wanted);
    return cudaSuccess;
  } catch (const KernelError& error) {
    if (error.code == cudaErrorNotSupported)
      return refuse_launch(readable_kernel_name(kernel->name.c_str()),
                           std::string(": ") + error.what());
    if (error.code == cudaErrorSymbolNotFound)
      return fail(cudaErrorInvalidDeviceFunction, error.what());
    return fail(error.code, error.what());
  } catch (const std::bad_alloc&) {
    return fail(cudaErrorMemoryAllocation);
  } catch (const std::exception& error) {
    return fail(cudaErrorUnknown, error.what());
  }
}

KernelLaunch launch_of(dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                       cudaStream_t stream) {
  return {.grid = {grid.x, grid.y, grid.z},
          .block = {block.x, block.y, block.z},
          .shared_bytes = shared_bytes,
          .stream = stream,
          .arguments = arguments};
}

struct CallConfiguration {
  dim3 grid, block;
  std::size_t shared_bytes;
  cudaStream_t stream;
};
// A stack: the arguments of a launch may launch.
thread_local std::vector<CallConfiguration> configurations;

}  // namespace

// CUDA's own names begin with two underscores. NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes,
                                     cudaStream_t stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes,
                                       void* stream) {
  if (configurations.empty()) return fail(cudaErrorMissingConfiguration);
  const CallConfiguration& last = configurations.back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  configurations.pop_back();
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes, cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidDeviceFunction, function);
  return launch(function, launch_of(grid, block, arguments, shared_bytes, stream));
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared_bytes, cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** arguments) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, config);
  SIMULATE_GPUS_NEED(cudaErrorInvalidDeviceFunction, function);
  KernelLaunch wanted = launch_of(config->gridDim, config->blockDim, arguments,
                                  config->dynamicSmemBytes, config->stream);
  for (const cudaLaunchAttribute& each : std::span(config->attrs, config->numAttrs)) {
    if (each.id == cudaLaunchAttributeCooperative)
      wanted.is_cooperative = each.val.cooperative != 0;
    if (settings().dry_run || kernel_of(function) == nullptr)
      continue;  // LibTorch's are refused anyway
    if (const std::string reason = refusal_of(each); !reason.empty())
      return refuse_launch(kernel_name(function), ": " + reason);
  }
  return launch(function, wanted);
}

cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block,
                                        void** arguments, std::size_t shared_bytes,
                                        cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidDeviceFunction, function);
  KernelLaunch wanted = launch_of(grid, block, arguments, shared_bytes, stream);
  wanted.is_cooperative = true;
  return launch(function, wanted);
}
}
// NOLINTEND(bugprone-reserved-identifier)
