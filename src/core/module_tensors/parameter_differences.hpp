// SPDX-License-Identifier: MIT
//
// Texts for why a value cannot be read from, or written to, a network, or why networks are no
// replicas; and the error that lists them.
#pragma once

#include <utility>

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

/// What must agree between networks: of each name, in order, a text.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Dtypes, shapes, and what is tied: "float32[2, 3] tied to a". Of an undefined tensor only the name
/// counts.
[[nodiscard]] Facts facts_of(const NamedTensors& all);

/// How the others differ from the first: "a is float32[2] on rank 0, but missing on rank 1", where
/// `where` is " on rank ", and `missing` what a name is where it has no fact.
[[nodiscard]] Differences differences_between(const std::vector<Facts>& networks,
                                              const std::string& where, const std::string& missing);

/// The same for the facts_of replicas.
[[nodiscard]] Differences differences_between(const std::vector<NamedTensors>& replicas,
                                              const std::string& missing);

}  // namespace use_gpu::detail
