// SPDX-License-Identifier: MIT
//
// What a tensor is, in words and in bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>
#include <string>

namespace use_gpu::detail {

/// "float32[2, 3]", the shape clipped to that length.
[[nodiscard]] std::string dtype_and_shape(
    const at::Tensor& x, std::size_t longest_shape = std::numeric_limits<std::size_t>::max());

/// "float32[2, 3] on cuda:1", with the layout where it is not strided. "undefined tensor" if it is one.
[[nodiscard]] std::string summary(
    const at::Tensor& x, std::size_t longest_shape = std::numeric_limits<std::size_t>::max());

/// How many bytes the values take and, in sparse layouts, the indices; of the elements for layouts that
/// show neither. Tensor::nbytes() throws for sparse ones.
[[nodiscard]] std::size_t bytes_of(const at::Tensor& x);

}  // namespace use_gpu::detail
