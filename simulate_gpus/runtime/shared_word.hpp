// SPDX-License-Identifier: MIT
//
// A word in memory that processes share, for which threads of all of them can wait. All zeros is its initial state.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace simulate_gpus {

class SharedWord {
 public:
  [[nodiscard]] std::uint32_t value() const { return word_; }

  /// Changes it, and wakes all who wait.
  void change() {
    ++word_;
    syscall(SYS_futex, &word_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }

  /// Returns when it is no longer `seen`, or earlier; after that time at the latest, if one is given.
  void wait(std::uint32_t seen, std::chrono::milliseconds most = {}) {
    const timespec time{.tv_sec = most.count() / 1000, .tv_nsec = most.count() % 1000 * 1'000'000};
    syscall(SYS_futex, &word_, FUTEX_WAIT, seen, most.count() > 0 ? &time : nullptr, nullptr, 0);
  }

 private:
  std::atomic<std::uint32_t> word_;
};

}  // namespace simulate_gpus
