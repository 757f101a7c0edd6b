// SPDX-License-Identifier: MIT
//
// Why a kernel of the program, or its module, is refused; or how a kernel has failed. The driver's codes are the runtime's.
#pragma once

#include <driver_types.h>

#include <stdexcept>
#include <string>

namespace simulate_gpus {

class KernelError : public std::runtime_error {
 public:
  explicit KernelError(cudaError_t error, const std::string& text = {})
      : std::runtime_error(text), code(error) {}
  cudaError_t code;
};

}  // namespace simulate_gpus
