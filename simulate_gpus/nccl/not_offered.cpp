// SPDX-License-Identifier: MIT
//
// Every function of NCCL, refused in an error that names it: a program that needs one starts, and
// learns what simulated GPUs lack when it calls it. They are weak, so those that the other sources
// define are these.
#include "nccl/errors.hpp"
#include "runtime/interface.hpp"

#define SIMULATE_GPUS_NOT_OFFERED(function)                                            \
  extern "C" [[gnu::weak]] int function() {                                            \
    return simulate_gpus::nccl::refuse_in_nccl(5 /* ncclInvalidUsage */,               \
                                               simulate_gpus::not_offered(#function)); \
  }

#include "nccl_functions.inc"  // made by CMake: the functions that NCCL's headers name
