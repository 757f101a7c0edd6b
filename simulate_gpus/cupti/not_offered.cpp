// SPDX-License-Identifier: MIT
//
// Every function of CUPTI, refused, and named once on stderr: metrics, samples, ranges, and more. They are weak, so those
// that the other sources define are these. Without cupti.h, as here a name is enough.
#include "runtime/interface.hpp"

#define SIMULATE_GPUS_NOT_OFFERED(function)                   \
  extern "C" [[gnu::weak]] int function() {                   \
    static_cast<void>(simulate_gpus::not_offered(#function)); \
    return 27; /* CUPTI_ERROR_NOT_SUPPORTED */                \
  }

#include "cupti_functions.inc"  // made by CMake: the functions that CUPTI's headers declare
