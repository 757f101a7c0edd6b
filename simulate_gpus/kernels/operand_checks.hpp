// SPDX-License-Identifier: MIT
//
// Which operands are out of the ordinary, so that LibTorch's own kernel is asked whether it takes them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Device.h>

#include <optional>

#include "kernels/operation.hpp"

namespace simulate_gpus {

/// Throws where the operands are on several devices, unless the kernel takes such.
void check_operands(const c10::OperatorHandle& operation, const Values& arguments,
                    c10::Device device);

/// The same for an operation that NVIDIA's libraries compute, and that a dry run does not: its
/// dtypes and layouts are checked too.
void check_library_operands(const Operation& operation, const Values& arguments);

/// Throws where the kernel lacks the dtypes of the operands, if all are dense.
void check_dtypes(const Operation& operation, const Values& arguments);

/// Where the operands are, if all are dense, on one device and of a dtype that every kernel has; then none of
/// these checks has anything to say. None for other operands.
std::optional<c10::Device> device_of_ordinary(const Values& arguments);

}  // namespace simulate_gpus
