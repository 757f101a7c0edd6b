// SPDX-License-Identifier: MIT
#pragma once

namespace use_gpu::simulated_cuda {

/// From now on a host that reads or writes device memory ends the program with one line that says
/// so, and by the signal that it would have died of. Other faults go where they went before.
void report_host_access();

}  // namespace use_gpu::simulated_cuda
