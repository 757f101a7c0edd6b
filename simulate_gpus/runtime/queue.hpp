// SPDX-License-Identifier: MIT
//
// The work of a stream that was not waited for yet.
#pragma once

#include <driver_types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

namespace simulate_gpus {

using Work = std::function<void()>;

/// Thrown by work that fails with another error than cudaErrorLaunchFailure.
class WorkFailure : public std::runtime_error {
 public:
  WorkFailure(cudaError_t error, const std::string& text) : std::runtime_error(text), code(error) {}
  cudaError_t code;
};

/// The work of one stream, in order.
class Queue {
 public:
  explicit Queue(int device) : device_(device) {}

  /// Empty work does nothing, but keeps the stream busy until it is waited for.
  void submit(Work work);

  /// Whether there is nothing but one empty work. Then it is over, and another one is there.
  [[nodiscard]] bool renew();

  /// The place after all submitted work.
  [[nodiscard]] std::uint64_t end() const;
  [[nodiscard]] bool is_finished(std::uint64_t place) const;

  /// Does everything before the place, in this thread, or waits for the thread that does it. Work
  /// can wait only for work that was submitted earlier, so no two threads wait for each other. Waits
  /// for other ranks; but within the work of another queue, which would be held meanwhile, passes
  /// NotYet on.
  void finish(std::uint64_t place);

  /// The same without waiting for other ranks: whether all is done.
  bool try_finish(std::uint64_t place);

 private:
  void advance(std::uint64_t place);

  int device_;
  std::deque<Work> work_;
  std::uint64_t submitted_ = 0, finished_ = 0;
  bool is_running_ = false;
};

/// A moment in a stream; done from the start if it has no queue.
struct Moment {
  std::shared_ptr<Queue> queue;
  std::uint64_t place = 0;

  [[nodiscard]] bool is_finished() const { return !queue || queue->is_finished(place); }
  void finish() const {
    if (queue) queue->finish(place);
  }
  [[nodiscard]] bool try_finish() const { return !queue || queue->try_finish(place); }
};

/// The error of postponed work, once for each stream; first those of the current device. For
/// synchronizations.
cudaError_t take_failure();

}  // namespace simulate_gpus
