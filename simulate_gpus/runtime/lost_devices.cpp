// SPDX-License-Identifier: MIT
#include "lost_devices.hpp"

#include <array>
#include <cstdio>
#include <mutex>

#include "devices.hpp"
#include "errors.hpp"
#include "settings.hpp"

namespace simulate_gpus {
namespace {

struct Loss {
  cudaError_t code = cudaSuccess;
  std::string why;
};

struct Losses {
  std::mutex mutex;
  std::array<Loss, k_most_gpus> of_devices;
};

Losses& losses() {
  static auto* const losses = new Losses;  // never destroyed: used until the very end of a process
  return *losses;
}

Loss loss_of(int device) {
  const std::scoped_lock lock(losses().mutex);
  return losses().of_devices[static_cast<std::size_t>(device)];
}

}  // namespace

void lose_device(int device, cudaError_t code, const std::string& why) {
  {
    const std::scoped_lock lock(losses().mutex);
    Loss& loss = losses().of_devices[static_cast<std::size_t>(device)];
    if (loss.code != cudaSuccess) return;
    loss = {code, why};
  }
  std::fprintf(stderr, "simulate_gpus: %s\n", why.c_str());
  note_lost_device();
}

bool is_lost(int device) { return loss_of(device).code != cudaSuccess; }

cudaError_t error_of_lost_device() { return loss_of(current_device()).code; }

std::string text_of_lost_device() { return loss_of(current_device()).why; }

}  // namespace simulate_gpus
