// SPDX-License-Identifier: MIT
//
// What the program asked the simulated GPUs to do, printed when it ends (simulate_gpus --summary),
// and for tests, which ask in any run.
#pragma once

namespace simulate_gpus {

/// Adds the tool.
void start_summary();

}  // namespace simulate_gpus
