// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/MemoryFormat.h>

#include "kernels/arguments.hpp"

namespace simulate_gpus {

/// The layout of what _convolution and convolution_backward return on a GPU, but for the bias's gradient: the one in
/// which LibTorch calls cuDNN or its own kernels. Of tensors only sizes, strides and dtypes are looked at.
at::MemoryFormat layout_of_convolution(const Values& arguments, bool is_backward);

}  // namespace simulate_gpus
