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
  simulate_gpus::Moment moment = {};
  simulate_gpus::CapturedMoment captured = {};
  std::chrono::steady_clock::time_point time = {};
  simulate_gpus::Notes notes = {};
};
