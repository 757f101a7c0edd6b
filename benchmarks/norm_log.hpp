// SPDX-License-Identifier: MIT
//
// The ways of exercise 3, and more to compare them with: 1000 products of 100 x 100 matrices, and
// the Frobenius norm of each for the host. norm_log_benchmark times them, calls counts what they ask.
#pragma once

#include <vector>

#include "timing/timing.hpp"

/// The contenders for that device. Each returns the norms, in order, on the host; "no log" only the
/// last one, on the device, to show the time without logging. One uses the CPU only; the CUDA graph
/// is there on CUDA only.
[[nodiscard]] std::vector<Contender> norm_log_contenders(c10::Device device);
