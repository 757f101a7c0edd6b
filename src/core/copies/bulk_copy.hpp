// SPDX-License-Identifier: MIT
//
// Many tensors between devices: in few transfers and few kernels.
#pragma once

#include <ATen/core/Tensor.h>

namespace use_gpu::detail {

/// Writes values[i] into targets[i], which has its shape, in place; each may be anywhere. If its
/// dtype is another one, it is converted before it leaves its device.
///
/// From one device to another small tensors travel together, up to 32 MB at a time, between host and
/// CUDA through pinned memory. A large one, a single small one, and a few travel as by LibTorch's
/// copy_.
///
/// Waits for what it moves between host and device. Needs besides, for each pair of devices, at most
/// 32 MB on each side, pinned memory on the host, which LibTorch keeps for later; and a copy of each
/// tensor that lies otherwise in memory than its target. Allocates all before it writes, so that
/// running out of memory changes nothing. After another error of LibTorch the values of the targets
/// are unspecified. In inference mode: autograd records nothing.
void bulk_copy(at::TensorList values, at::TensorList targets);

}  // namespace use_gpu::detail
