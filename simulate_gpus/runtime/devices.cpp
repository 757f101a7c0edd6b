// SPDX-License-Identifier: MIT
//
// The devices: how many there are, what they are, which one is current, and their contexts.
#include "devices.hpp"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "current_operation.hpp"
#include "device_attributes.hpp"
#include "device_properties.hpp"
#include "errors.hpp"
#include "interface.hpp"
#include "libtorch.hpp"
#include "settings.hpp"
#include "streams.hpp"

namespace simulate_gpus {
namespace {

thread_local int current = 0;
thread_local bool thread_has_context = false;
std::array<std::atomic<bool>, k_most_gpus> contexts;
std::atomic<bool> made_context = false;  // also one that has ended
std::array<std::atomic<unsigned>, k_most_gpus> device_flags;

}  // namespace

bool exists(int device) { return device >= 0 && device < num_devices(); }

int card_of(int device) { return settings().visible[static_cast<std::size_t>(device)]; }

int num_devices() { return static_cast<int>(settings().visible.size()); }

int current_device() { return current; }

void prefer_device(int device) { current = device; }

void make_context(int device) {
  thread_has_context = true;
  note_use();
  contexts[static_cast<std::size_t>(device)] = made_context = true;
}

bool has_context(int device) {
  return exists(device) && contexts[static_cast<std::size_t>(device)];
}

void end_context(int device) {
  thread_has_context = false;
  contexts[static_cast<std::size_t>(device)] = false;
}

bool has_used_gpus() { return !is_forked() && made_context; }

}  // namespace simulate_gpus

using namespace simulate_gpus;

extern "C" {

bool simulated_cuda_has_context(int device) { return has_context(device); }
bool simulated_cuda_thread_has_context() { return thread_has_context; }

cudaError_t cudaGetDeviceCount(int* count) {
  if (count) *count = 0;
  SIMULATE_GPUS_ENTER_WITHOUT_CONTEXT();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, count);
  note_use();
  meet_libtorch();
  *count = num_devices();
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  SIMULATE_GPUS_ENTER_WITHOUT_CONTEXT();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, device);
  meet_allocator();
  *device = current;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  SIMULATE_GPUS_ENTER_WITHOUT_CONTEXT();
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  current = device;
  make_context(device);
  return cudaSuccess;
}

// How the host is to wait. Mapped host memory is implied.
cudaError_t cudaSetDeviceFlags(unsigned flags) {
  SIMULATE_GPUS_ENTER();
  const unsigned schedule = flags & cudaDeviceScheduleMask;
  if ((flags & ~unsigned{cudaDeviceMask}) != 0 || (schedule & (schedule - 1)) != 0)
    return fail(cudaErrorInvalidValue);
  device_flags[static_cast<std::size_t>(current)] = flags;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, flags);
  *flags = device_flags[static_cast<std::size_t>(current)] | cudaDeviceMapHost;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  SIMULATE_GPUS_ENTER_ANYWHERE();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, version);
  *version = settings().driver_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  SIMULATE_GPUS_ENTER_ANYWHERE();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, version);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  SIMULATE_GPUS_ENTER_WITHOUT_CONTEXT();
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, properties);
  *properties = properties_of(card_of(device));
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  SIMULATE_GPUS_ENTER_WITHOUT_CONTEXT();
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  const auto found = attribute_of(card_of(device), attribute);
  if (value == nullptr || !found) return fail(cudaErrorInvalidValue);
  *value = *found;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  SIMULATE_GPUS_ENTER_WITHOUT_CONTEXT();
  if (least) *least = k_least_priority;
  if (greatest) *greatest = k_greatest_priority;
  return cudaSuccess;
}

// The driver's own look-up, whose codes are the runtime's. LibTorch 2.15 looks all functions up when
// it starts, and throws where one is missing.
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* result) {
  SIMULATE_GPUS_ENTER();
  using LookUp = int(const char*, void**, int, std::uint64_t, cudaDriverEntryPointQueryResult*);
  static void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return fail(cudaErrorNotSupported, "the program has no libcuda.so.1");
  static auto* const look_up = reinterpret_cast<LookUp*>(dlsym(driver, "cuGetProcAddress_v2"));
  return fail(
      static_cast<cudaError_t>(look_up(name, function, static_cast<int>(version), flags, result)));
}

// Asks nothing of a device, and cannot fail.
cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
                                            cudaChannelFormatKind kind) {
  return {x, y, z, w, kind};
}

// Declared in a header that the compiler from PyPI lacks.
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }
}
