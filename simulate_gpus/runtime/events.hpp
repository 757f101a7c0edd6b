// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "streams.hpp"

/// A moment in a stream, or in a capture.
struct CUevent_st {
  bool is_recorded = false;
  simulated_cuda::Moment moment;
  std::shared_ptr<simulated_cuda::Recording> recording;
  const CUstream_st* captured = nullptr;  // the stream, and what it had given to the recording
  std::size_t given = 0;
  std::chrono::steady_clock::time_point time;
  std::string stream;  // its name, for the trace
};
