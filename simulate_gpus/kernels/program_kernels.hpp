// SPDX-License-Identifier: MIT
//
// Kernels that the program had put in the place of LibTorch's own before those were replaced: they stay.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

namespace simulate_gpus {

struct ProgramKernel {
  c10::DispatchKey key;
  std::string operation;
  c10::SafeKernelFunction kernel;
};
using ProgramKernels = std::vector<ProgramKernel>;

/// Those of aten's operations on GPUs, before any is replaced.
ProgramKernels program_kernels();

/// After all others were replaced.
void put_back(ProgramKernels kernels);

}  // namespace simulate_gpus
