// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <memory>

#include "captures.hpp"
#include "shared_events.hpp"
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
  std::shared_ptr<simulate_gpus::SharedEvent> shared = {};  // with other processes
  bool is_opened = false;                                   // it is another process's
};
