// SPDX-License-Identifier: MIT
//
// What nvcc's code registers before main: fat binaries, their kernels and variables, by addresses of the host that stand for them.
// LibTorch registers 20,000 kernels, which simulated GPUs never run: registering only takes notes.
#pragma once

#include <cstddef>
#include <string>

#include "program_kernel.hpp"

namespace simulate_gpus {

/// The kernel that a function of the host stands for, or a handle of one; null for a kernel of LibTorch, and for what was never
/// registered.
CUfunc_st* kernel_of(const void* function);

/// The program may launch the kernel's handle as if it were a function, to the end of the process.
void add_kernel_handle(CUfunc_st* kernel);

struct RegisteredVariable {
  std::string name;
  std::size_t bytes = 0;
  ProgramModule* module = nullptr;  ///< null for one of LibTorch
};

/// The one that a variable of the host stands for. Throws: KernelError.
RegisteredVariable variable_registered_as(const void* symbol);

}  // namespace simulate_gpus
