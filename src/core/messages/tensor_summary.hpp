// SPDX-License-Identifier: MIT
//
// What a tensor is, in words and in bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace use_gpu::detail {

/// "float32[2, 3]".
[[nodiscard]] std::string dtype_and_shape(const at::Tensor& x);

/// The bytes of the values and, in sparse layouts, of the indices; in opaque layouts, of the
/// elements. Tensor::nbytes() throws for sparse ones.
[[nodiscard]] std::size_t bytes_of(const at::Tensor& x);

}  // namespace use_gpu::detail
