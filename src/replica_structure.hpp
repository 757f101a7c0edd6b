// SPDX-License-Identifier: MIT
//
// Whether several networks are the same but for their values, as replicas must be. Tensors are
// found by name: nothing depends on the order in which a network registers them.
#pragma once

#include <ATen/core/Tensor.h>
#include <use_gpu/module_ref.hpp>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "parameter_differences.hpp"

namespace use_gpu {

using NamedTensors = std::map<std::string, at::Tensor>;

/// Parameters and buffers that are defined; submodules too, since they have a training mode, as
/// undefined tensors.
[[nodiscard]] NamedTensors structure_of(const torch::nn::Module& net);

/// The parameters that are not frozen.
[[nodiscard]] NamedTensors trainable_parameters_of(const torch::nn::Module& net);

/// How the others differ from the first: in names, dtypes, shapes, and in what is tied. `missing`
/// is the text between a name and the replica that lacks it.
[[nodiscard]] Differences differences_between(const std::vector<NamedTensors>& replicas,
                                              std::string_view missing);

/// One name for each tensor, of which tied ones have several; none for a submodule.
[[nodiscard]] std::vector<std::string> distinct_names(const NamedTensors& all);

/// The tensors with those names.
[[nodiscard]] std::vector<at::Tensor> tensors_named(const std::vector<std::string>& names,
                                                    const NamedTensors& all);

/// "replica 1".
[[nodiscard]] std::string replica_name(std::size_t index);

/// ArgumentError if one module is there twice.
void check_distinct(std::string_view function, const std::vector<torch::nn::Module*>& nets);

}  // namespace use_gpu
