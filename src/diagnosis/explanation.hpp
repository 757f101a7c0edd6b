// SPDX-License-Identifier: MIT
//
// Why the GPUs are as they are, in words.
#pragma once

#include <string>

#include "diagnosis/gpu_probe.hpp"

namespace use_gpu::detail {

/// The cause and the next step, in at most 400 characters.
[[nodiscard]] std::string explain(const GpuFacts& facts);

}  // namespace use_gpu::detail
