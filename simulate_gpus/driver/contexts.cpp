// SPDX-License-Identifier: MIT
//
// Contexts: each device has one, its primary one.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "driver/result.hpp"
#include "runtime/interface.hpp"
#include "runtime/settings.hpp"

using namespace simulate_gpus;

namespace {

// A context is the address of one of these, which are never read.
std::array<char, k_most_gpus> places;

CUcontext context_of(int device) {
  return reinterpret_cast<CUcontext>(&places[static_cast<std::size_t>(device)]);
}

std::optional<int> device_of(CUcontext context) {
  const auto* const place = reinterpret_cast<const char*>(context);
  if (place < places.data() || place >= places.data() + places.size()) return std::nullopt;
  return static_cast<int>(place - places.data());
}

CUcontext current_context() {
  int device = 0;
  if (!simulated_cuda_thread_has_context() || cudaGetDevice(&device) != cudaSuccess) return nullptr;
  return context_of(device);
}

// What a thread has pushed, and takes back; without the current one.
std::vector<CUcontext>& pushed() {
  thread_local std::vector<CUcontext> contexts;
  return contexts;
}

}  // namespace

extern "C" {

CUresult cuCtxGetCurrent(CUcontext* current) {
  // Asked before LibTorch compiles a kernel, which takes half a second and is not launched then.
  if (rehearses()) return CUDA_ERROR_NOT_SUPPORTED;
  *current = current_context();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  if (context == nullptr) return CUDA_SUCCESS;
  const auto device = device_of(context);
  return device ? result(cudaSetDevice(*device)) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  if (!device_of(context)) return CUDA_ERROR_INVALID_CONTEXT;
  const CUcontext before = current_context();
  const CUresult failed = cuCtxSetCurrent(context);
  if (failed == CUDA_SUCCESS) pushed().push_back(before);
  return failed;
}

// The last one stays: a thread that has used CUDA has a context.
CUresult cuCtxPopCurrent(CUcontext* popped) {
  const CUcontext current = current_context();
  if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (popped) *popped = current;
  if (pushed().empty()) return CUDA_SUCCESS;
  const CUcontext before = pushed().back();
  pushed().pop_back();
  return cuCtxSetCurrent(before);
}

CUresult cuCtxGetDevice(CUdevice* device) { return result(cudaGetDevice(device)); }

CUresult cuCtxSynchronize() { return result(cudaDeviceSynchronize()); }

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  *active = simulated_cuda_has_context(device) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* retained, CUdevice device) {
  int count = 0;
  if (const CUresult failed = cuDeviceGetCount(&count)) return failed;
  if (device < 0 || device >= count) return CUDA_ERROR_INVALID_DEVICE;
  *retained = context_of(device);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
}
