// SPDX-License-Identifier: MIT
//
// Streams. Work submitted to a stream stays in its queue until something needs it: a
// synchronization, the next operation in the same stream, or another stream that waits for it by an
// event. So a program that forgets to wait always sees the old value; on a real GPU it would only
// sometimes.
#pragma once

#include <driver_types.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "queue.hpp"

namespace simulated_cuda {

/// What was captured from streams, to be done at each launch of the graph. It is also done during
/// the capture, so that each step finds the values that it needs (an index, say); the end of the
/// capture restores all memory.
struct Recording {
  unsigned long long id = 0;
  const CUstream_st* origin = nullptr;
  std::atomic<bool> is_invalid = false;
  bool is_unjoined = false;
  std::atomic<bool> has_ended = false;
  std::vector<Work> steps, undo;
  /// What each launch adds to the counts.
  std::vector<std::function<void()>> counted;
  /// How many steps each stream has given, and how many of them another stream has waited for: at
  /// the end it must be all, except for the origin.
  std::map<const CUstream_st*, std::size_t> given, joined;
};

/// A recording, or none, which any thread may ask for and replace. Not std::atomic<std::shared_ptr>:
/// ThreadSanitizer takes GCC 12's for a data race.
class SharedRecording {
 public:
  [[nodiscard]] std::shared_ptr<Recording> load() const {
    const std::scoped_lock lock(mutex_);
    return recording_;
  }
  void store(std::shared_ptr<Recording> recording) {
    const std::scoped_lock lock(mutex_);
    recording_.swap(recording);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Recording> recording_;
};

/// The stream that a handle stands for; the default stream of the current device for null.
CUstream_st& stream_of(cudaStream_t handle);

/// Submits work to the stream, or to its capture, where `undo` reverts it. Makes the device's
/// context.
void submit(CUstream_st& stream, Work work, Work undo = {});

/// Counts something that the stream is given: now, or at each launch of what is captured.
void count(const CUstream_st& stream, const Work& add);

/// Does all work of the stream. Not during a capture.
void finish(CUstream_st& stream);

/// Does all work of the device's streams.
void finish_device(int device);

/// Does all work of all streams, for which the host waits.
void finish_all();

/// Captures from the stream: into a recording of its own, or one that another stream began.
void begin_capture(CUstream_st& stream, std::shared_ptr<Recording> recording);

/// Ends the capture of all streams into the recording, and restores the memory.
void end_capture(Recording& recording);

/// Whether a stream of the device is being captured.
bool is_capturing_on(int device);

}  // namespace simulated_cuda

struct CUstream_st {
  int device = 0;
  int number = 0;  // in the order in which they were made; 0 is the default stream
  int priority = 0;
  bool waits_for_default_stream = false;
  std::shared_ptr<simulated_cuda::Queue> queue =
      std::make_shared<simulated_cuda::Queue>();
  /// While it is captured.
  simulated_cuda::SharedRecording recording = {};

  /// "cuda:0 stream 3"
  [[nodiscard]] std::string name() const {
    return "cuda:" + std::to_string(device) + " stream " + std::to_string(number);
  }
};
