// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <memory>

#include "clock.hpp"
#include "trace.hpp"

/// A moment in a stream, or in a capture.
struct CUevent_st {
  int device;
  bool measures_time;
  bool is_recorded = false;
  simulated_cuda::Moment moment = {};
  simulated_cuda::CapturedMoment captured = {};
  std::chrono::steady_clock::time_point time = {};
  std::shared_ptr<simulated_cuda::Mark> mark = {};  // if it was traced
  simulated_cuda::Clock clock = {};
};
