// SPDX-License-Identifier: MIT
//
// Every function of the runtime, refused in an error that names it: a program that needs one starts,
// and learns what simulated GPUs lack when it calls it. They are weak, so those that the other
// sources define are these. CUDA's own headers are left out: here a name is enough.
#include <driver_types.h>

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "errors.hpp"
#include "interface.hpp"

// By it NVIDIA's own libraries ask for tables that no header describes, and do without: CUPTI, say,
// whenever LibTorch's profiler starts. A program that needs these hears of it from those libraries. LibTorch 2.15 asks for
// the driver's log at its start.
static const std::set<std::string> k_silent = {"cuGetExportTable", "cuLogsRegisterCallback"};

// Of all libraries, which refuse in the same words.
std::string simulate_gpus::not_offered(const std::string& function) {
  struct Said {
    std::mutex mutex;
    std::set<std::string> functions;
  };
  static auto* const said = new Said;  // never destroyed: used until the very end of a process
  const std::string text = function + " is not offered by simulated GPUs";
  if (k_silent.contains(function)) return text;
  const std::scoped_lock lock(said->mutex);
  if (said->functions.insert(function).second)
    std::fprintf(stderr, "simulate_gpus: %s\n", text.c_str());
  return text;
}

#define SIMULATE_GPUS_NOT_OFFERED(function)                                                   \
  extern "C" [[gnu::weak]] cudaError_t function() {                                           \
    SIMULATE_GPUS_ENTER();                                                                    \
    return simulate_gpus::fail(cudaErrorNotSupported, simulate_gpus::not_offered(#function)); \
  }

#include "runtime_functions.inc"  // made by CMake: the functions that the runtime's headers name

// What nvcc's code and CUDA's own libraries call, which no header names.
// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names
SIMULATE_GPUS_NOT_OFFERED(__cudaGetProcAddress)
SIMULATE_GPUS_NOT_OFFERED(__cudaRegisterHostVar)
SIMULATE_GPUS_NOT_OFFERED(__cudaRegisterUnifiedTable)
// NOLINTEND(bugprone-reserved-identifier)
