// SPDX-License-Identifier: MIT
#pragma once

namespace simulated_cuda {

/// From now on, an access of the host to device memory ends the program with one line that explains
/// it, and by the original signal. Other faults go to the previous handler.
void report_host_access();

}  // namespace simulated_cuda
