// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

namespace simulated_cuda {

/// The names of the operations ("add.Tensor") that are computed here, or refused.
struct Registered {
  std::vector<std::string> computed, refused;
};

/// For our own kernels, registered after the CPU's.
void mark_as_computed(const std::string& operation);

}  // namespace simulated_cuda

extern "C" {

/// Replaces LibTorch's CUDA kernels in the program's dispatcher. Once in a process.
void simulated_cuda_replace_kernels();

/// For tests and the docs.
const simulated_cuda::Registered* simulated_cuda_registered();
}
