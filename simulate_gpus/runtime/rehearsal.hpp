// SPDX-License-Identifier: MIT
#pragma once

#include <driver_types.h>

namespace simulated_cuda {

/// Success, unless this thread rehearses: then no launch, copy or memory set begins.
cudaError_t refuse_in_rehearsal();

}  // namespace simulated_cuda
