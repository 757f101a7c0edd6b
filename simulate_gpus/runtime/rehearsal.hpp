// SPDX-License-Identifier: MIT
#pragma once

#include <driver_types.h>

#include "given.hpp"

namespace simulate_gpus {

/// What this thread's rehearsal would give to a stream, if that was asked for.
void note_given(const Given& given);

/// Success, unless this thread rehearses: then nothing begins whose result the host reads.
cudaError_t refuse_in_rehearsal();

}  // namespace simulate_gpus
