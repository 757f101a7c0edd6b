// SPDX-License-Identifier: MIT
//
// Streams. Work submitted to a stream stays in its queue until something needs it: a
// synchronization, the next operation in the same stream, or another stream that waits for it by an
// event. So a program that forgets to wait always sees the old value; on a real GPU it would only
// sometimes.
#pragma once

#include <driver_types.h>

#include <functional>
#include <memory>
#include <string>

#include "captures.hpp"
#include "queue.hpp"

namespace simulate_gpus {

/// As on all cards of today.
inline constexpr int k_least_priority = 0, k_greatest_priority = -5;

/// The stream that a handle stands for; the default stream of the current device for null.
CUstream_st& stream_of(cudaStream_t handle);

/// Submits work to the stream, or to its capture, where `undo` reverts it. Makes the device's
/// context.
void submit(CUstream_st& stream, Work work, Work undo = {});

/// The moment after all that the stream was given, and after what it waits for. Makes the device's context.
Moment moment_after(CUstream_st& stream);

/// Whether this thread has given work to a stream. One that only looks must not do the work that it
/// looks at: results would appear before the program waits for them.
bool gives_work();

/// Does all work of the stream. Not during a capture.
void finish(CUstream_st& stream);

/// Does all work of the device's streams.
void finish_device(int device);

/// Does all work of all streams, for which the host waits; but on other devices than the current one
/// what waits for other ranks stays: their threads may need this one.
void finish_all();

/// Each stream that exists. `action` cannot make or destroy one.
void for_each_stream(const std::function<void(CUstream_st&)>& action);

}  // namespace simulate_gpus

struct CUstream_st {
  int device = 0;
  int number = 0;  // in the order in which they were made; 0 is the default stream
  int priority = 0;
  bool waits_for_default_stream = false;
  std::shared_ptr<simulate_gpus::Queue> queue = std::make_shared<simulate_gpus::Queue>(device);
  simulate_gpus::SharedCapture capture = {};

  [[nodiscard]] bool is_default() const { return number == 0; }

  /// "cuda:0 stream 3"
  [[nodiscard]] std::string name() const {
    return "cuda:" + std::to_string(device) + " stream " + std::to_string(number);
  }
};
