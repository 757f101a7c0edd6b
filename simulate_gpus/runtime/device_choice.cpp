// SPDX-License-Identifier: MIT
//
// How programs find a device: by its place on the bus, or by what they need. All devices are alike.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <span>

#include "devices.hpp"
#include "errors.hpp"

using namespace simulate_gpus;

extern "C" {

cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  SIMULATE_GPUS_ENTER();
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  constexpr int k_size = sizeof "0000:00:00.0";
  if (id == nullptr || size < k_size) return fail(cudaErrorInvalidValue);
  std::snprintf(id, static_cast<std::size_t>(size), "0000:%02x:00.0", card_of(device) + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, device, id);
  unsigned domain = 0, bus = 0, place = 0;
  if (std::sscanf(id, "%x:%x:%x", &domain, &bus, &place) != 3) return fail(cudaErrorInvalidValue);
  for (int found = 0; found < num_devices(); ++found) {
    if (domain == 0 && place == 0 && bus == static_cast<unsigned>(card_of(found)) + 1) {
      *device = found;
      return cudaSuccess;
    }
  }
  return fail(cudaErrorInvalidDevice);
}

cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* wanted) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, device, wanted);
  *device = 0;
  return cudaSuccess;
}

// The devices that a program without a current one is to try, in this order: the first is never busy.
cudaError_t cudaSetValidDevices(int* devices, int count) {
  SIMULATE_GPUS_ENTER();
  if (count < 0 || (count > 0 && devices == nullptr)) return fail(cudaErrorInvalidValue);
  const std::span valid(devices, static_cast<std::size_t>(count));
  if (!std::ranges::all_of(valid, exists)) return fail(cudaErrorInvalidDevice);
  if (!valid.empty() && !has_used_gpus()) prefer_device(valid.front());
  return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned flags) {
  SIMULATE_GPUS_ENTER();
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  if (flags > cudaInitDeviceFlagsAreValid) return fail(cudaErrorInvalidValue);
  make_context(device);
  return cudaSuccess;
}
}
