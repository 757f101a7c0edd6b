// SPDX-License-Identifier: MIT
//
// A network's tensors by name: nothing depends on the order in which it registers them. A tied
// tensor has several names.
#pragma once

#include <ATen/core/Tensor.h>
#include <use_gpu/module_ref.hpp>

#include <map>
#include <string>
#include <vector>

namespace use_gpu::detail {

using NamedTensors = std::map<std::string, at::Tensor>;

/// Parameters and buffers that are defined.
[[nodiscard]] NamedTensors named_tensors_of(const torch::nn::Module& net);

/// The parameters that are not frozen.
[[nodiscard]] NamedTensors trainable_parameters_of(const torch::nn::Module& net);

/// The first name of each tensor; none for an undefined one.
[[nodiscard]] std::vector<std::string> distinct_names(const NamedTensors& all);

/// The tensors with those names.
[[nodiscard]] std::vector<at::Tensor> tensors_named(const std::vector<std::string>& names,
                                                    const NamedTensors& all);

/// Each tensor once.
[[nodiscard]] std::vector<at::Tensor> distinct_tensors(const NamedTensors& all);

/// These tensors in host memory, contiguous; tied ones stay tied. CPU ones that are so already are
/// not copied. Waits for the devices. ParameterError, which begins with `function`, if there are
/// tensors without plain values.
[[nodiscard]] NamedTensors on_host(const NamedTensors& all, const std::string& function);

}  // namespace use_gpu::detail
