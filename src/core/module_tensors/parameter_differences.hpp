// SPDX-License-Identifier: MIT
//
// Texts for why a value cannot be read from, or written to, a network, or why networks are no
// replicas; and the error that lists them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/module_tensors/named_tensors.hpp"

namespace use_gpu::detail {

/// One text per name; it starts with that name.
using Differences = std::vector<std::string>;

/// Why x's values cannot be copied as they are: "undefined", "not dense". Empty if they can.
[[nodiscard]] std::string trouble_with(const at::Tensor& x);

/// Why value cannot be written into target: "is float32[2] in the network, but ...". Empty if it
/// can. `may_convert`: also into another dtype, as LibTorch's promotion rules allow it (c10::canCast),
/// if no integer becomes another integer; value is then on the CPU.
[[nodiscard]] std::string difference(const at::Tensor& target, const at::Tensor& value,
                                     bool may_convert = false);

/// Throws ParameterError with all differences, if there are any; what() shows as many as fit. Control
/// characters, which names from a file may contain, become "?" in it.
void throw_if_any(const std::string& what, Differences differences);

/// "replica 1".
[[nodiscard]] std::string replica_name(std::size_t index);

/// How the others differ from the first: in names, dtypes, shapes, and in what is tied. `missing` is
/// the text between a name and the replica that lacks it. Of an undefined tensor only the name counts.
[[nodiscard]] Differences differences_between(const std::vector<NamedTensors>& replicas,
                                              const std::string& missing);

}  // namespace use_gpu::detail
