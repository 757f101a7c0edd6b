// SPDX-License-Identifier: MIT
//
// What travels between the processes of a group in place of a tensor: contiguous, of a dtype that
// Gloo and NCCL can both add and compare, on the device that the backend takes.
#pragma once

#include <ATen/core/Tensor.h>
#include <use_gpu/communicator.hpp>

#include <string>

namespace use_gpu {

/// Why a group of that size cannot have this root; empty if it can.
[[nodiscard]] std::string trouble_with_root(int root, int size);

/// ArgumentError, which begins with the operation, unless x can be sent and written to.
void check_sendable(const char* operation, const at::Tensor& x);

/// The dtype in which values of x's dtype are reduced. ArgumentError where they cannot be.
[[nodiscard]] at::ScalarType reduction_dtype(const at::Tensor& x, ReduceOp how);

/// x's values with that dtype, contiguous, on x's device or on the host. x itself, detached, where
/// it is so already.
[[nodiscard]] at::Tensor to_wire(const at::Tensor& x, at::ScalarType dtype, bool through_host);

/// Writes back into x what has become of to_wire(x).
void from_wire(const at::Tensor& wire, const at::Tensor& x);

}  // namespace use_gpu
