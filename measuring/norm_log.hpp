// SPDX-License-Identifier: MIT
//
// The ways of exercise 3, for its program and its benchmark: 1000 products of 100 x 100 matrices,
// and the Frobenius norm of each for the host. The inputs are scaled so that no norm overflows.
#pragma once

#include <vector>

#include "measuring/contender.hpp"

/// On that device; each results in the norms, in order, on the host. "no log" keeps them to itself,
/// but for the last: what is left of the time when nothing is logged. One works on the CPU only, a
/// CUDA graph on CUDA only.
[[nodiscard]] std::vector<Contender> norm_log_contenders(c10::Device device);
