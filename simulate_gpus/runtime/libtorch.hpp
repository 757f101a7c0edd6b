// SPDX-License-Identifier: MIT
#pragma once

namespace simulate_gpus {

/// Gives the program's LibTorch kernels that compute on simulated GPUs, once. To be called when the
/// program first counts its GPUs: by then LibTorch is loaded and has registered its own kernels. A
/// program without LibTorch is left alone; a LibTorch of another version than the kernels were
/// built with ends the program, with one line that says so and the status 2.
void meet_libtorch();

}  // namespace simulate_gpus
