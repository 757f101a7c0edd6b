// SPDX-License-Identifier: MIT
//
// LibTorch's tensors as the safetensors format has them, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensor_files/safetensors.hpp"

namespace use_gpu::detail {

/// Refers to x's memory; x is contiguous and on the CPU. std::runtime_error, which names the dtype,
/// if the format lacks it.
[[nodiscard]] StoredTensor to_stored(const std::string& name, const at::Tensor& x);

/// Refers to the stored memory, which may not be aligned, and must not be written to.
/// std::runtime_error, which names the dtype, if LibTorch lacks it.
[[nodiscard]] at::Tensor to_tensor(const StoredTensor& stored);

/// x, which is contiguous; a copy if its memory is not aligned. Only copies of its bytes, such as
/// bulk_copy into a target to which it is alike, may do without.
[[nodiscard]] at::Tensor aligned(const at::Tensor& x);

}  // namespace use_gpu::detail
