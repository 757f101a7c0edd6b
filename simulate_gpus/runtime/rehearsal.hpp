// SPDX-License-Identifier: MIT
#pragma once

#include <driver_types.h>

namespace simulate_gpus {

/// Success, unless this thread rehearses: then no launch, copy or memory set begins.
cudaError_t refuse_in_rehearsal();

}  // namespace simulate_gpus
