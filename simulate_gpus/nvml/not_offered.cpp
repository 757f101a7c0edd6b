// SPDX-License-Identifier: MIT
//
// Every function of NVML that no other source defines, with NVML's own error for what a card does not
// have. Without nvml.h, as here a name is enough.
#include "runtime/interface.hpp"

#define SIMULATE_GPUS_NOT_OFFERED(function)                   \
  extern "C" [[gnu::weak]] int function() {                   \
    static_cast<void>(simulate_gpus::not_offered(#function)); \
    return 3 /* NVML_ERROR_NOT_SUPPORTED */;                  \
  }

#include "nvml_functions.inc"  // made by CMake: the functions that nvml.h declares
