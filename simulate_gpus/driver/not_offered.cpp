// SPDX-License-Identifier: MIT
//
// Every function of the driver, refused in an error that names it: a program that looks one up finds
// it, and learns what simulated GPUs lack when it calls it. They are weak, so those that the driver's
// other sources define are these.
#include "driver/refusal.hpp"
#include "runtime/interface.hpp"

#define SIMULATE_GPUS_NOT_OFFERED(function)                                        \
  extern "C" [[gnu::weak]] int function() {                                        \
    return simulate_gpus::refuse_in_driver(801 /* CUDA_ERROR_NOT_SUPPORTED */,     \
                                           simulate_gpus::not_offered(#function)); \
  }

#include "driver_functions.inc"  // made by CMake: the functions that cuda.h names
