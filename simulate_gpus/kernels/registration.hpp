// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

namespace simulate_gpus {

/// The names of the operations ("add.Tensor") that are computed here, or refused.
struct Registered {
  std::vector<std::string> computed, refused;
};

/// For our own kernels, registered after the CPU's.
void mark_as_computed(const std::string& operation);

}  // namespace simulate_gpus

extern "C" {

/// Replaces LibTorch's CUDA kernels in the program's dispatcher. Once in a process.
void simulate_gpus_replace_kernels();

/// For tests and the docs.
const simulate_gpus::Registered* simulate_gpus_registered();
}
