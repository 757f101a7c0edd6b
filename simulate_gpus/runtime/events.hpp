// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <string>

#include "streams.hpp"

/// A moment in a stream, or in a capture.
struct CUevent_st {
  bool is_recorded = false;
  simulated_cuda::Moment moment;
  simulated_cuda::CapturedMoment captured;
  std::chrono::steady_clock::time_point time;
  std::string stream;  // its name, for the trace
};
