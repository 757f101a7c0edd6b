// SPDX-License-Identifier: MIT
#pragma once

#include "ptx/ptx.hpp"

namespace simulate_gpus {

/// What kernels of the device reach: its own memory, that of its peers, pinned and managed memory. With
/// `managed` their module's variables are managed memory.
ptx::Host memory_for_kernels(int device, bool managed);

}  // namespace simulate_gpus
