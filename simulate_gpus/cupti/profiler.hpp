// SPDX-License-Identifier: MIT
//
// The tool that writes CUPTI's records of what the runtime tells it. It is added when the program first asks for records
// or callbacks; until then nothing is told or kept.
#pragma once

namespace simulate_gpus::cupti {

/// Has the runtime tell of calls while something is recorded or called back, and only then.
void watch();

}  // namespace simulate_gpus::cupti
