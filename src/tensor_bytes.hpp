// SPDX-License-Identifier: MIT
//
// How many bytes a tensor's values take. Tensor::nbytes() throws for sparse ones.
#pragma once

#include <ATen/core/Tensor.h>

namespace use_gpu {

/// Of values and, in sparse layouts, indices; of the elements for layouts that show neither.
[[nodiscard]] std::size_t bytes_of(const at::Tensor& x);

}  // namespace use_gpu
