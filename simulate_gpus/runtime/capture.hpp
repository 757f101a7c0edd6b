// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "capture_modes.hpp"
#include "captures.hpp"

namespace simulate_gpus {

struct Capture : RunningCapture {
  using RunningCapture::RunningCapture;

  /// How many steps a stream has given, and how many of them another stream has waited for: at the
  /// end it must be all, except for the origin.
  struct Steps {
    std::size_t given = 0, joined = 0;
  };

  unsigned long long id = 0;
  const CUstream_st* origin = nullptr;
  std::atomic<bool> has_ended = false;
  // Guards the rest: threads of one program may fill several streams of a capture at once.
  std::mutex mutex;
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
  std::vector<Work> undo;
  std::map<const CUstream_st*, Steps> steps;
};

}  // namespace simulate_gpus
