// SPDX-License-Identifier: MIT
//
// What travels between the processes of a group in place of a tensor: contiguous, of a dtype that
// Gloo and NCCL can both add and compare, on the device that the backend takes.
#pragma once

#include <use_gpu/communicator.hpp>

#include <variant>

namespace use_gpu::detail {

/// What is done with a tensor: it is reduced, or copied from that root.
using Collective = std::variant<ReduceOp, int>;

/// "mean"; "from 1".
[[nodiscard]] std::string text_of(Collective what);

/// Why x's values cannot be sent for that; a sentence that begins with what x is. Empty if they can.
[[nodiscard]] std::string why_not_sent(const at::Tensor& x, Collective what);

/// x's values, contiguous, on x's device or on the host, in the dtype in which they are sent so. If x
/// is all that already, in memory of LibTorch's, it is only detached, not copied.
[[nodiscard]] at::Tensor to_wire(const at::Tensor& x, Collective what, bool through_host);

}  // namespace use_gpu::detail
