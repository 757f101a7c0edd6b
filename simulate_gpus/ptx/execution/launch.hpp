// All blocks of a launch, on threads of the host.
#pragma once

#include "ptx/execution/launch_state.hpp"

namespace simulate_gpus::ptx {

// Returns when all have ended. Throws: Fault.
void run_launch(LaunchState& launch);

}  // namespace simulate_gpus::ptx
