// SPDX-License-Identifier: MIT
//
// Modules that a program loads itself: by NVRTC, Triton, from a file. A CUlibrary is one too, and a CUkernel is a CUfunction.
#pragma once

#include <cuda.h>

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>

#include "driver/refusal.hpp"
#include "runtime/interface.hpp"
#include "runtime/program_kernel.hpp"
#include "runtime/program_module.hpp"

struct CUmod_st {
  std::shared_ptr<simulate_gpus::ProgramModule> module;
  std::optional<int> device = {};  // whose context it belongs to; a library has none
  std::mutex mutex;
  std::map<std::string, CUfunc_st> functions;  // which stay where they are
};

namespace simulate_gpus {

/// What the runtime has refused, as the driver's error. What simulated GPUs do not offer is said on stderr too, once: few
/// programs ask for the text of an error.
CUresult refused_as(const KernelError& error);

/// Does what a function of the driver does, which begins as the runtime's do: after a fork, say, it fails.
template <class Action>
CUresult attempt_in_driver(const Action& action, const char* function = __builtin_FUNCTION()) {
  try {
    forget_refusal();
    if (const cudaError_t refused = enter_call(function)) return static_cast<CUresult>(refused);
    action();
    return CUDA_SUCCESS;
  } catch (const KernelError& error) {
    return refused_as(error);
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    return static_cast<CUresult>(refuse_in_driver(CUDA_ERROR_UNKNOWN, error.what()));
  }
}

/// Throws: KernelError, where it cannot be read.
std::string bytes_of_file(const char* name);

/// Throws: KernelError, where the module has no such kernel.
CUfunction function_of(CUmod_st& module, const std::string& name);

/// The current device.
int device_of_thread();

}  // namespace simulate_gpus
