// SPDX-License-Identifier: MIT
#pragma once

#include <driver_types.h>

namespace simulate_gpus {

/// Success, unless this thread rehearses: then nothing begins whose result the host reads.
cudaError_t refuse_in_rehearsal();

}  // namespace simulate_gpus
