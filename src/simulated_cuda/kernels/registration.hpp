// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

namespace use_gpu::simulated_cuda {

/// What became of LibTorch's CUDA kernels, by the names of their operations ("add.Tensor").
struct Registered {
  std::vector<std::string> computed, refused;
};

/// For a kernel of our own, which comes after those of the CPU.
void mark_as_computed(const std::string& operation);

}  // namespace use_gpu::simulated_cuda

extern "C" {

/// Replaces LibTorch's CUDA kernels in the program's dispatcher. Once in a process.
void simulated_cuda_replace_kernels();

/// For tests and the docs.
const use_gpu::simulated_cuda::Registered* simulated_cuda_registered();
}
