// SPDX-License-Identifier: MIT
//
// Which device reaches the memory of which: each that of all others, as soon as the program has said so.
#include "peers.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>

#include "devices.hpp"
#include "errors.hpp"
#include "settings.hpp"

namespace simulate_gpus {
namespace {

// Of the pair of a device and its peer.
std::atomic<bool>& is_enabled(int device, int peer) {
  static std::array<std::array<std::atomic<bool>, k_most_gpus>, k_most_gpus> enabled;
  return enabled[static_cast<std::size_t>(device)][static_cast<std::size_t>(peer)];
}

}  // namespace

bool reaches(int device, int peer) { return is_enabled(device, peer); }

void forget_peers(int device) {
  for (int peer = 0; peer < k_most_gpus; ++peer) is_enabled(device, peer) = false;
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

extern "C" {

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  SIMULATE_GPUS_ENTER();
  if (!exists(device) || !exists(peer)) return fail(cudaErrorInvalidDevice);
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, can);
  *can = device != peer;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  SIMULATE_GPUS_ENTER();
  if (!exists(peer)) return fail(cudaErrorInvalidDevice);
  if (flags != 0) return fail(cudaErrorInvalidValue);
  if (peer == current_device()) return fail(cudaErrorPeerAccessUnsupported);
  make_context(current_device());
  return is_enabled(current_device(), peer).exchange(true) ? fail(cudaErrorPeerAccessAlreadyEnabled)
                                                           : cudaSuccess;
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  SIMULATE_GPUS_ENTER();
  if (!exists(peer)) return fail(cudaErrorInvalidDevice);
  return is_enabled(current_device(), peer).exchange(false) ? cudaSuccess
                                                            : fail(cudaErrorPeerAccessNotEnabled);
}

// Access is all that peers here have: no atomics between them, no arrays.
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int device,
                                      int peer) {
  SIMULATE_GPUS_ENTER();
  if (!exists(device) || !exists(peer) || device == peer) return fail(cudaErrorInvalidDevice);
  if (value == nullptr || attribute < cudaDevP2PAttrPerformanceRank ||
      attribute > cudaDevP2PAttrCudaArrayAccessSupported)
    return fail(cudaErrorInvalidValue);
  *value = attribute == cudaDevP2PAttrAccessSupported;
  return cudaSuccess;
}
}
