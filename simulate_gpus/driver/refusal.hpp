// SPDX-License-Identifier: MIT
//
// How the driver refuses. Its errors are numbers alone, so the text of cuGetErrorString tells what
// was refused. Without cuda.h: not_offered.cpp defines functions of which it knows the name.
#pragma once

#include <string>

namespace simulate_gpus {

/// Returns the code, a CUresult. In this thread its text ends with the reason from now on, until
/// the next refusal.
int refuse_in_driver(int code, const std::string& reason);

/// For an error of another cause.
void forget_refusal();

}  // namespace simulate_gpus
