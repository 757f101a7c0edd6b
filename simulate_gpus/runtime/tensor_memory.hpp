// SPDX-License-Identifier: MIT
//
// The memory of LibTorch's tensors, as the program requested it: what LibTorch takes from a GPU is
// more, rounded up and kept for later (kernels/observers.cpp tells of each block).
#pragma once

#include <cstdint>
#include <string>

namespace simulated_cuda {

/// The most that tensors of a device had at a time, and the operation that made it so much.
struct TensorPeak {
  std::uint64_t bytes = 0;
  std::string operation;
};
TensorPeak tensor_peak(int device);

}  // namespace simulated_cuda
