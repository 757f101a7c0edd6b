// SPDX-License-Identifier: MIT
#pragma once

#include <driver_types.h>

namespace simulate_gpus {

/// What kind of GPU a simulated card is.
cudaDeviceProp properties_of(int card);

/// One of these properties; 0 for what such a card does not have.
int attribute_of(const cudaDeviceProp& properties, cudaDeviceAttr attribute);

}  // namespace simulate_gpus
