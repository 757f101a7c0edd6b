// SPDX-License-Identifier: MIT
//
// Streams. Work that is given to a stream waits in its queue until somebody needs it done: a
// synchronization, the next operation in the same stream, or a stream that was told to wait for it
// by an event. So a program that forgets to wait sees the old value, always, where a real GPU would
// show it now and then.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "queue.hpp"

namespace use_gpu::simulated_cuda {

/// What was captured from streams, to be done at each launch of the graph. While it is captured it
/// is done too, so that each step finds the values that it needs (an index, say); at the end of the
/// capture all memory becomes what it was.
struct Recording {
  unsigned long long id = 0;
  const CUstream_st* origin = nullptr;
  bool is_invalid = false, is_unjoined = false;
  std::vector<Work> steps, undo;
  /// What each launch adds to the counts.
  std::vector<std::function<void()>> counted;
  /// How many steps each stream has given, and how many of them another stream has waited for: all,
  /// but for those of the origin, when the capture ends.
  std::map<const CUstream_st*, std::size_t> given, joined;
};

/// The stream that a handle stands for; the default stream of the current device for null.
CUstream_st& stream_of(cudaStream_t handle);

/// Gives work to the stream, or to its capture, for which `undo` takes back what it did. Makes the
/// device's context.
void submit(CUstream_st& stream, Work work, Work undo = {});

/// Counts something that the stream is given: now, or at each launch of what is captured.
void count(const CUstream_st& stream, const Work& add);

/// Does all that the stream was given. Not for one that is captured.
void finish(CUstream_st& stream);

/// Does all that the device's streams, or all streams, were given.
void finish_device(int device);
void finish_all();

/// Captures from the stream: into a recording of its own, or one that another stream began.
void begin_capture(CUstream_st& stream, std::shared_ptr<Recording> recording);

/// No stream is captured into the recording any more, and memory is what it was before.
void end_capture(Recording& recording);

/// Whether a stream of the device is being captured.
bool is_capturing_on(int device);

}  // namespace use_gpu::simulated_cuda

struct CUstream_st {
  int device = 0;
  int priority = 0;
  bool waits_for_default_stream = false;
  std::shared_ptr<use_gpu::simulated_cuda::Queue> queue =
      std::make_shared<use_gpu::simulated_cuda::Queue>();
  std::shared_ptr<use_gpu::simulated_cuda::Recording> recording = {};  // while it is captured
};
