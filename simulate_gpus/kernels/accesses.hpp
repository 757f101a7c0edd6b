// SPDX-License-Identifier: MIT
//
// Which memory an operation uses, for --check.
#pragma once

#include <driver_types.h>

#include "kernels/operation.hpp"

namespace simulate_gpus {

/// Tells the runtime what the operation, given to the stream, reads and writes on GPUs.
void check_accesses(cudaStream_t stream, const Operation& operation, const Values& arguments,
                    const Values& results);

}  // namespace simulate_gpus
