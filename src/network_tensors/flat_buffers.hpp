// SPDX-License-Identifier: MIT
//
// Many small tensors as few large ones: a transfer takes 10 us however small it is, so a thousand
// parameters should not travel alone. Of values, not of autograd: callers switch that off.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <vector>

namespace use_gpu::detail {

/// What travels together: positions in a list of tensors, all of one device and one dtype, and of
/// at most 64 MB together; a larger tensor is alone in its bucket.
using Bucket = std::vector<std::size_t>;

/// Each tensor of the list in one bucket, in its order.
[[nodiscard]] std::vector<Bucket> buckets(at::TensorList tensors);

/// The tensors of a bucket.
[[nodiscard]] std::vector<at::Tensor> select(at::TensorList tensors, const Bucket& bucket);

/// Their values one after the other, in one dimension, on their device. One that is alone and
/// contiguous is not copied.
[[nodiscard]] at::Tensor flatten(at::TensorList tensors);

/// Views of `flat` with the shapes of `like`: the reverse of flatten.
[[nodiscard]] std::vector<at::Tensor> unflatten(const at::Tensor& flat, at::TensorList like);

/// The tensors in host memory, contiguous, in few transfers; waits for them. What is there already
/// is not copied; what is copied has memory of its own.
[[nodiscard]] std::vector<at::Tensor> gather_to_host(at::TensorList tensors);

/// Does a write that would leave some tensors with old values if it stopped half-way. If the device
/// refuses it, LibTorch's cached memory is released (a kernel that is launched for the first time
/// needs some of the device's) and the whole write is done once more. What it throws then passes:
/// the device is lost, and its values with it.
void write_with_retry(c10::function_ref<void()> write);

/// Writes each value into the target at its place, which has its dtype and shape: in place, in few
/// transfers from host memory. Allocates before it writes, so that running out of memory on a
/// device changes nothing; each write is one with retry.
void scatter(at::TensorList values, at::TensorList targets);

}  // namespace use_gpu::detail
