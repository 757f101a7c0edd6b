// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>

#include "tool.hpp"

namespace simulate_gpus {

/// What watch_calls() has said.
extern std::atomic<bool> calls_are_watched;

/// The call of a function of CUDA, told from its beginning to its end.
class Call {
 public:
  explicit Call(const char* function)
      : is_watched_(calls_are_watched.load(std::memory_order_relaxed)) {
    if (is_watched_) tell(&Tool::begins_call, function);
  }
  ~Call() {
    if (is_watched_) tell(&Tool::ends_call);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  bool is_watched_;
};

}  // namespace simulate_gpus
