// SPDX-License-Identifier: MIT
//
// The tool that writes CUPTI's records of what the runtime tells it. It is added when the program first asks for records
// or callbacks; until then nothing is told or kept.
#pragma once

#include <cstdint>

namespace simulate_gpus::cupti {

/// Has the runtime tell of calls while something is recorded or called back, and only then.
void watch();

/// When this thread was back from its last call of CUDA; 0 for none.
std::uint64_t end_of_last_call();

}  // namespace simulate_gpus::cupti
