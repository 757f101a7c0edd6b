// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>

#include "captures.hpp"
#include "tool.hpp"

/// A moment in a stream, or in a capture.
struct CUevent_st {
  int device;
  bool measures_time;
  bool is_recorded = false;
  simulated_cuda::Moment moment = {};
  simulated_cuda::CapturedMoment captured = {};
  std::chrono::steady_clock::time_point time = {};
  simulated_cuda::Notes notes = {};
};
