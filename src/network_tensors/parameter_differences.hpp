// SPDX-License-Identifier: MIT
//
// Why a value cannot be read from, or written to, a network, in words; and the error that lists
// them all.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace use_gpu::detail {

/// One text for each name, which it begins with.
using Differences = std::vector<std::string>;

/// Why x's values cannot be copied as they are: "not dense". Empty if they can.
[[nodiscard]] std::string trouble_with(const at::Tensor& x);

/// Why value cannot be written into target: "is float32[2] in the network, but ...". Empty if it
/// can.
[[nodiscard]] std::string difference(const at::Tensor& target, const at::Tensor& value);

/// ParameterError, with the control characters that names from a file may have made visible as "?".
[[noreturn]] void throw_parameter_error(const std::string& message, Differences differences = {});

/// ParameterError with all differences, of which its what() shows as many as fit; nothing if there
/// are none.
void throw_if_any(const std::string& what, Differences differences);

}  // namespace use_gpu::detail
