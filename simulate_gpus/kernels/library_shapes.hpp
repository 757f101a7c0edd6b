// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <string>
#include <vector>

namespace simulate_gpus {

/// The results of an operation that NVIDIA's libraries compute, where it has no meta kernel in C++
/// ("linalg_eig"; Python brings some), as tensors without values. Its arguments are such tensors
/// too. Empty for an operation that is not known.
std::vector<at::Tensor> shapes_without_meta_kernel(const std::string& name,
                                                   const torch::jit::Stack& arguments);

}  // namespace simulate_gpus
