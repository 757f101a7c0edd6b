// SPDX-License-Identifier: MIT
//
// Modules that a program loads itself: by NVRTC, Triton, from a file. A CUlibrary is one too, and a CUkernel is a CUfunction.
#pragma once

#include <cuda.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "driver/refusal.hpp"
#include "runtime/program_kernel.hpp"
#include "runtime/program_module.hpp"

struct CUmod_st {
  std::shared_ptr<simulate_gpus::ProgramModule> module;
  std::mutex mutex;
  std::map<std::string, CUfunc_st> functions;  // which stay where they are
};

namespace simulate_gpus {

/// What the runtime has refused, as the driver's error. What simulated GPUs do not offer is said on stderr too, once: few
/// programs ask for the text of an error.
CUresult refused_as(const KernelError& error);

template <class Action>
CUresult attempt_in_driver(const Action& action) {
  try {
    action();
    forget_refusal();
    return CUDA_SUCCESS;
  } catch (const KernelError& error) {
    return refused_as(error);
  }
}

/// Of an image as cuModuleLoadData takes it. Throws: KernelError.
CUmodule load_module(const void* image);

/// Of the bytes of a file. Throws: KernelError, also where it cannot be read.
CUmodule load_module_file(const char* name);

/// Throws: KernelError, where the module has no such kernel.
CUfunction function_of(CUmod_st& module, const std::string& name);

/// The current device.
int device_of_thread();

}  // namespace simulate_gpus
