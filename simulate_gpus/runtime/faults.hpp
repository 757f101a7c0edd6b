// SPDX-License-Identifier: MIT
#pragma once

#include <driver_types.h>

namespace simulated_cuda {

/// The error that SIMULATE_GPUS_FAULTS requests for this call of the function; usually success. An
/// invalid entry there ends the program, with one line and the status 2.
cudaError_t requested_fault(const char* function);

}  // namespace simulated_cuda
