// SPDX-License-Identifier: MIT
#pragma once

#include <driver_types.h>

namespace simulate_gpus {

/// What kind of GPU a simulated card is.
cudaDeviceProp properties_of(int card);

}  // namespace simulate_gpus
