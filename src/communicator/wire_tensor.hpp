// SPDX-License-Identifier: MIT
//
// What travels between the processes of a group in place of a tensor: contiguous, of a dtype that
// Gloo and NCCL can both add and compare, on the device that the backend takes.
#pragma once

#include <ATen/core/Tensor.h>
#include <use_gpu/communicator.hpp>

#include <optional>
#include <string>
#include <variant>

namespace use_gpu::detail {

/// What is done with a tensor: it is reduced, or copied from that root.
using Collective = std::variant<ReduceOp, int>;

/// Why a group of that size cannot have this root; empty if it can.
[[nodiscard]] std::string trouble_with_root(int root, int size);

/// ArgumentError, which begins with the operation, unless a group of that size can do so with x.
void check_collective(const std::string& operation, const at::Tensor& x, Collective what, int size);

/// The dtype in which values of that dtype are reduced; none where they cannot be.
[[nodiscard]] std::optional<at::ScalarType> reduction_dtype(at::ScalarType dtype, ReduceOp how);

/// x's values with that dtype, contiguous, on x's device or on the host. If x is so already, it is
/// only detached, not copied.
[[nodiscard]] at::Tensor to_wire(const at::Tensor& x, at::ScalarType dtype, bool through_host);

/// Copies the changed to_wire(x) back into x.
void from_wire(const at::Tensor& wire, const at::Tensor& x);

}  // namespace use_gpu::detail
