// SPDX-License-Identifier: MIT
//
// The arguments of a call as the CPU's kernel takes them. Tensors that share memory share it on the host
// too, so that LibTorch finds operands that overlap, and refuses them as on a GPU.
#pragma once

#include "kernels/arguments.hpp"
#include "kernels/operation.hpp"

namespace simulate_gpus {

/// The arguments with views of device memory. Memory that is written is no longer shared by lazy
/// copies. `apart`: what is written is a copy, to be shown later; operands that overlap are so in
/// the copy too.
Values host_arguments(const Operation& operation, const Values& arguments, bool apart);

}  // namespace simulate_gpus
