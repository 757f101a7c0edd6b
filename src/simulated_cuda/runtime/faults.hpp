// SPDX-License-Identifier: MIT
#pragma once

#include <driver_types.h>

namespace use_gpu::simulated_cuda {

/// The error that this call of the function shall answer, as SIMULATE_GPUS_FAULTS asks for; success
/// for most. What cannot be read there ends the program, with one line and the status 2.
cudaError_t requested_fault(const char* function);

}  // namespace use_gpu::simulated_cuda
