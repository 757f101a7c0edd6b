// SPDX-License-Identifier: MIT
#pragma once

#include <driver_types.h>

#include "interface.hpp"

namespace simulate_gpus {

/// Appends to the launches of this thread's rehearsal, if they were asked for.
void note_launch(const Launched& launch);

/// Success, unless this thread rehearses: then nothing begins whose result the host reads.
cudaError_t refuse_in_rehearsal();

}  // namespace simulate_gpus
