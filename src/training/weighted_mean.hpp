// SPDX-License-Identifier: MIT
//
// Means of many tensors that are on several devices: in few transfers and few kernels.
#pragma once

#include <cstdint>

#include "core/copies/each_copy.hpp"

namespace use_gpu::detail {

/// Steps that replace each tensor by the mean of those at its place in all lists, list i weighted by
/// weights[i]; a list of weight 0 counts nothing, even if it holds nan. Each list is on one device;
/// all have the same shapes and dtypes. Half precision is summed in float32, and the means have the
/// same bits in all lists. Nothing has changed until the first step is called; the sum of the
/// weights is not 0. For values only: callers switch autograd off.
[[nodiscard]] std::vector<Step> weighted_mean(const std::vector<std::vector<at::Tensor>>& lists,
                                              const std::vector<std::int64_t>& weights);

}  // namespace use_gpu::detail
