// SPDX-License-Identifier: MIT
//
// What the GPUs are given, and what the program waits for, in that order. Each is described once,
// for the lines (simulate_gpus --trace) and for the file (--trace=FILE).
#pragma once

namespace simulate_gpus {

/// Adds the tool if --trace was given.
void start_trace();

}  // namespace simulate_gpus
