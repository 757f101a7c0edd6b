// SPDX-License-Identifier: MIT
//
// Many small tensors as few large ones: a transfer takes at least 10 us, so a thousand parameters
// should not be sent one by one. For values only: callers switch autograd off.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace use_gpu::detail {

/// Of some tensors in a list.
using Positions = std::vector<std::size_t>;

/// What travels together: each tensor of the list in one bucket, in its order. A bucket's tensors are
/// of one device and one dtype, and of at most 64 MB together; a larger one is alone in its bucket.
[[nodiscard]] std::vector<Positions> buckets(at::TensorList tensors);

/// The tensors at those positions.
[[nodiscard]] std::vector<at::Tensor> select(at::TensorList tensors, const Positions& positions);

/// Their values in one dimension on their device, all of one dtype, one after the other. One that is
/// alone and contiguous is not copied.
[[nodiscard]] at::Tensor flatten(at::TensorList tensors);

/// Views of `flat` with the shapes of `like`: the reverse of flatten.
[[nodiscard]] std::vector<at::Tensor> unflatten(const at::Tensor& flat, at::TensorList like);

}  // namespace use_gpu::detail
