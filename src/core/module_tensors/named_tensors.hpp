// SPDX-License-Identifier: MIT
//
// A network's tensors by name, as nothing depends on the order in which it registers them (a tied
// tensor has several names); copies of their data elsewhere, in few transfers; and new data for
// them, possibly on another device or of another dtype, while each keeps its identity.
#pragma once

#include <c10/core/Device.h>
#include <use_gpu/module_ref.hpp>

#include <map>

#include "core/copies/each_copy.hpp"

namespace use_gpu::detail {

using NamedTensors = std::map<std::string, at::Tensor>;

/// Parameters and buffers that are defined. ParameterError if one of each has the same name.
[[nodiscard]] NamedTensors named_tensors_of(const torch::nn::Module& net);

/// The parameters that are not frozen.
[[nodiscard]] NamedTensors trainable_parameters_of(const torch::nn::Module& net);

/// The first name of each tensor; none for an undefined one.
[[nodiscard]] std::vector<std::string> distinct_names(const NamedTensors& all);

/// Each tensor once, in the order of distinct_names.
[[nodiscard]] std::vector<at::Tensor> distinct_tensors(const NamedTensors& all);

/// ParameterError, which begins with `function`, if there are tensors without plain values.
void check_readable(const NamedTensors& all, const std::string& function);

/// These tensors in host memory, contiguous; tied ones stay tied. CPU ones that are so already are
/// not copied, if the caller may share them. All are readable. Waits for the devices.
[[nodiscard]] NamedTensors on_host(const NamedTensors& all, bool may_share = true);

/// Memory for x's data on that device, of that dtype. Made in inference mode exactly if x was:
/// otherwise LibTorch would refuse later writes or reads.
[[nodiscard]] at::Tensor empty_on(c10::Device device, const at::Tensor& x, at::ScalarType dtype);

/// New data for x in such memory, which has x's values once the copies, to which it adds, are made.
[[nodiscard]] at::Tensor data_on(c10::Device device, const at::Tensor& x, at::ScalarType dtype,
                                 Pairs& copies);

/// Gives each target its value as data, then does the rest. If anything throws, all get their old data
/// back.
void swap_data(const Pairs& moves, const std::function<void()>& rest);

}  // namespace use_gpu::detail
