// SPDX-License-Identifier: MIT
//
// What captures forbid the threads of a program besides work in the captured streams: calls that CUDA calls potentially
// unsafe, since they may wait for other streams inside. The mode of a capture, and of the calling thread, decides.
#pragma once

#include <driver_types.h>

#include <atomic>
#include <thread>

namespace simulate_gpus {

/// A capture, from its beginning to `stop`.
class RunningCapture {
 public:
  explicit RunningCapture(cudaStreamCaptureMode mode);
  ~RunningCapture() { stop(); }
  RunningCapture(const RunningCapture&) = delete;
  RunningCapture& operator=(const RunningCapture&) = delete;

  void stop();

  /// Whether this thread may not make unsafe calls meanwhile.
  [[nodiscard]] bool forbids() const;

  std::atomic<bool> is_invalid = false;

 private:
  cudaStreamCaptureMode mode_;
  std::thread::id thread_ = std::this_thread::get_id();
};

/// The error of an unsafe call while a capture forbids it, which makes that capture invalid. Takes no
/// lock while nothing is captured.
cudaError_t refuse_unsafe();

}  // namespace simulate_gpus
