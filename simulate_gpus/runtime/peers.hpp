// SPDX-License-Identifier: MIT
#pragma once

namespace simulate_gpus {

/// Whether the program has said that kernels of the device may use the memory of the peer.
bool reaches(int device, int peer);

/// What the program has said of the device is no longer so.
void forget_peers(int device);

}  // namespace simulate_gpus
