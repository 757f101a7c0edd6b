// SPDX-License-Identifier: MIT
//
// Captures: what a captured stream is given is recorded, to be done at each launch of a graph. It is also done at once,
// so that each step finds the values that it needs (an index, say); the end of the capture restores all memory.
#pragma once

#include <driver_types.h>

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "queue.hpp"
#include "tool.hpp"

namespace simulate_gpus {

/// What each launch does, and how much was told of until then.
struct Step {
  std::function<void(CUstream_st& launched)> submit;
  std::size_t given;
};

/// What each launch of a graph gives to its stream, in the order of the calls; what is told of it, and what tools do.
struct Recording {
  std::vector<Step> steps;
  std::vector<Captured> given;
  std::deque<std::string> texts;  // own the names and calls in `given`
  std::vector<std::function<void(CUstream_st& launched)>> at_each_launch;
  std::vector<std::shared_ptr<CUuserObject_st>> objects;  // that the graph keeps alive
};

struct Capture;

/// The capture of a stream, or none, which any thread may ask for and replace. Not
/// std::atomic<std::shared_ptr>: ThreadSanitizer takes GCC 12's for a data race.
class SharedCapture {
 public:
  [[nodiscard]] bool exists() const { return exists_; }
  [[nodiscard]] std::shared_ptr<Capture> load() const {
    if (!exists()) return nullptr;
    const std::scoped_lock lock(mutex_);
    return capture_;
  }
  void store(std::shared_ptr<Capture> capture) {
    const std::scoped_lock lock(mutex_);
    capture_.swap(capture);
    exists_ = capture_ != nullptr;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Capture> capture_;
  std::atomic<bool> exists_ = false;  // asked for in each operation
};

/// A moment in a captured stream; without a capture if the stream was not captured.
struct CapturedMoment {
  std::shared_ptr<Capture> capture;
  const CUstream_st* stream = nullptr;
  std::size_t given = 0;  // how many steps the stream had given
};
CapturedMoment captured_moment(const CUstream_st& stream);

/// The stream waits for the moment, and is captured with it. An error if that capture has ended or is invalid; one
/// that makes the captures invalid for a default stream, or a stream of another capture.
cudaError_t join(CUstream_st& stream, const CapturedMoment& moment);

bool is_captured(const CUstream_st& stream);

/// The error, which makes the stream's capture invalid; success if it is not captured.
cudaError_t invalidate(const CUstream_st& stream, cudaError_t error);

/// Whether a stream of the device is captured.
bool is_capturing_on(int device);

/// The error of waiting for the device while a stream of it is captured, which makes the capture invalid.
cudaError_t refuse_device_wait(int device);

/// The error of waiting for the stream while it is captured, which makes the capture invalid;
/// success if it is not captured.
cudaError_t refuse_wait(const CUstream_st& stream);

/// The same of an event that was recorded outside of the capture.
cudaError_t refuse_event_from_outside(const CUstream_st& stream);

/// The error of asking for a moment of a capture, which makes that capture invalid; success for other moments.
cudaError_t refuse_look(const CapturedMoment& moment);

/// Adds a step of the stream to its capture. If it was already done, `undo` reverts it when the capture ends.
void record(Capture& capture, const CUstream_st& stream, Work step, Work undo = {});

/// Adds to a capture what a tool does at each launch, before its work.
void at_each_launch(Capture& capture, std::function<void(CUstream_st& launched)> action);

/// Tells what the stream is given: now, and at each launch of what is captured.
void tell_given(CUstream_st& stream, const Given& given);

}  // namespace simulate_gpus

/// While it is captured, and then the program's.
struct CUgraph_st {
  std::shared_ptr<simulate_gpus::Recording> recording =
      std::make_shared<simulate_gpus::Recording>();
};
