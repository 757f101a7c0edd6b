// SPDX-License-Identifier: MIT
#pragma once

namespace simulate_gpus {

/// From now on, an access of the host to device memory ends the program with one line that explains
/// it, and by the original signal; one that a tool allows goes on. Other
/// faults go to the previous handler. To be called again where the program may have installed one
/// since, as Python's faulthandler does.
void report_host_access();

}  // namespace simulate_gpus
