// SPDX-License-Identifier: MIT
//
// Whether several networks differ only in their values, as replicas must.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "network_tensors/named_tensors.hpp"
#include "network_tensors/parameter_differences.hpp"

namespace use_gpu::detail {

/// Defined parameters and buffers; and submodules, as undefined tensors, since they have a training
/// mode.
[[nodiscard]] NamedTensors structure_of(const torch::nn::Module& net);

/// How the others differ from the first: in names, dtypes, shapes, and in what is tied. `missing`
/// is the text between a name and the replica that lacks it.
[[nodiscard]] Differences differences_between(const std::vector<NamedTensors>& replicas,
                                              std::string_view missing);

/// "replica 1".
[[nodiscard]] std::string replica_name(std::size_t index);

/// ArgumentError if one module is there twice.
void check_distinct(std::string_view function, const std::vector<torch::nn::Module*>& nets);

}  // namespace use_gpu::detail
