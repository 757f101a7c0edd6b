// SPDX-License-Identifier: MIT
//
// A device on which a kernel has failed: CUDA answers every later call for it with that kernel's error.
#pragma once

#include <driver_types.h>

#include <string>

namespace simulate_gpus {

/// The first time it says so on stderr.
void lose_device(int device, cudaError_t code, const std::string& why);

bool is_lost(int device);

/// The error of the current device; success if it is not lost. `fail()` gives it its text.
cudaError_t error_of_lost_device();

/// The text for that error.
std::string text_of_lost_device();

}  // namespace simulate_gpus
