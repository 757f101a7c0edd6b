// SPDX-License-Identifier: MIT
//
// What travels between the processes of a group in place of a tensor: contiguous, of a dtype that
// Gloo and NCCL can both add and compare, on the device that the backend takes.
#pragma once

#include <ATen/core/Tensor.h>
#include <use_gpu/communicator.hpp>

#include <optional>
#include <string>

namespace use_gpu::detail {

/// Why a group of that size cannot have this root; empty if it can.
[[nodiscard]] std::string trouble_with_root(int root, int size);

/// ArgumentError, which begins with the operation, unless x can be sent and written to.
void check_sendable(const char* operation, const at::Tensor& x);

/// ArgumentError, which begins with "all_reduce", unless x's values can be reduced so.
void check_reducible(const at::Tensor& x, ReduceOp how);

/// The dtype in which values of that dtype are reduced; none where they cannot be.
[[nodiscard]] std::optional<at::ScalarType> reduction_dtype(at::ScalarType dtype, ReduceOp how);

/// x's values with that dtype, contiguous, on x's device or on the host. If x is so already, it is
/// only detached, not copied.
[[nodiscard]] at::Tensor to_wire(const at::Tensor& x, at::ScalarType dtype, bool through_host);

/// Copies the changed to_wire(x) back into x.
void from_wire(const at::Tensor& wire, const at::Tensor& x);

}  // namespace use_gpu::detail
