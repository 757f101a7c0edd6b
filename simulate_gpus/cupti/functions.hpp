// SPDX-License-Identifier: MIT
//
// The numbers that CUPTI has for CUDA's functions.
#pragma once

#include <cupti.h>

#include <string_view>

namespace simulate_gpus::cupti {

struct Function {
  CUpti_CallbackDomain domain;
  CUpti_CallbackId id;
  const char* name;  ///< with the version of CUDA that brought it: cudaLaunchKernel_v7000
};

/// By the name that a program calls: cudaLaunchKernel. Null for a function that CUPTI does not know.
const Function* find_function(std::string_view called);

}  // namespace simulate_gpus::cupti
