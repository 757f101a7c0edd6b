// SPDX-License-Identifier: MIT
//
// Calls of CUDA that fail by request (SIMULATE_GPUS_FAULTS).
#pragma once

namespace simulate_gpus {

/// Adds the tool if a fault is requested. An invalid entry ends the program, with one line and the status 2.
void start_faults();

}  // namespace simulate_gpus
