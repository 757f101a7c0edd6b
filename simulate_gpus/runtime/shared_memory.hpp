// SPDX-License-Identifier: MIT
//
// Memory of a GPU that processes share by the handles of CUDA IPC. It belongs to the process that has allocated it.
#pragma once

namespace simulate_gpus {

/// The allocation that begins there is freed: its handles lead nowhere from now on.
void stop_sharing(const void* allocation);

}  // namespace simulate_gpus
