// SPDX-License-Identifier: MIT
#pragma once

#include "runtime/tool.hpp"

namespace simulate_gpus::cupti {

/// What the records call an operation or a collective; stays. A kernel of CUDA has its own (mangled) name. Where the CPU
/// computes, only the operation is known: "aten::add (simulated)".
const char* name_of_kernel(const Given& given);

}  // namespace simulate_gpus::cupti
