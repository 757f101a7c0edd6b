// SPDX-License-Identifier: MIT
#pragma once

#include <cuda.h>
#include <driver_types.h>

#include "driver/refusal.hpp"

namespace simulate_gpus {

/// What a function of the runtime has answered, whose codes are the driver's.
inline CUresult result(cudaError_t code) {
  if (code != cudaSuccess) forget_refusal();
  return static_cast<CUresult>(code);
}

/// The driver's addresses are integers.
inline void* pointer(CUdeviceptr address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<void*>(address);
}

}  // namespace simulate_gpus
