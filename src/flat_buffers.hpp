// SPDX-License-Identifier: MIT
//
// Many small tensors as few large ones: a transfer takes 10 us however small it is, so a thousand
// parameters should not travel alone. Of values, not of autograd: callers switch that off.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace use_gpu {

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

/// Writes each value into the target at its place, which has its dtype and shape: in place, in few
/// transfers from host memory. Allocates before it writes, so that running out of memory on a
/// device changes nothing.
void scatter(at::TensorList values, at::TensorList targets);

}  // namespace use_gpu
