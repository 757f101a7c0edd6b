// SPDX-License-Identifier: MIT
//
// The values of tensors that may be anywhere, in host memory.
#pragma once

#include "network_tensors/named_tensors.hpp"

namespace use_gpu::detail {

/// These tensors in host memory, contiguous; tied ones stay tied. CPU ones that are so already are
/// not copied. Waits for the devices. ParameterError, which begins with `function`, if there are
/// tensors without plain values.
[[nodiscard]] NamedTensors on_host(const NamedTensors& all, const std::string& function);

}  // namespace use_gpu::detail
