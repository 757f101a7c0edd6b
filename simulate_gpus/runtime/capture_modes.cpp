// SPDX-License-Identifier: MIT
#include "capture_modes.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "errors.hpp"

namespace simulate_gpus {
namespace {

struct Running {
  std::atomic<int> count = 0;
  std::mutex mutex;
  std::vector<RunningCapture*> captures;
};

Running& running() {
  static auto* const running =
      new Running;  // never destroyed: used until the very end of a process
  return *running;
}

thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

}  // namespace

RunningCapture::RunningCapture(cudaStreamCaptureMode mode) : mode_(mode) {
  const std::scoped_lock lock(running().mutex);
  running().captures.push_back(this);
  ++running().count;
}

void RunningCapture::stop() {
  const std::scoped_lock lock(running().mutex);
  running().count -= static_cast<int>(std::erase(running().captures, this));
}

bool RunningCapture::forbids() const {
  if (mode_of_thread == cudaStreamCaptureModeRelaxed) return false;
  if (thread_ == std::this_thread::get_id()) return mode_ != cudaStreamCaptureModeRelaxed;
  return mode_ == cudaStreamCaptureModeGlobal && mode_of_thread == cudaStreamCaptureModeGlobal;
}

cudaError_t refuse_unsafe() {
  if (running().count == 0) return cudaSuccess;
  const std::scoped_lock lock(running().mutex);
  bool is_refused = false;
  for (RunningCapture* capture : running().captures) {
    if (capture->forbids()) capture->is_invalid = is_refused = true;
  }
  return is_refused ? fail(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

// A card takes any mode, also one that is none.
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  SIMULATE_GPUS_ENTER();
  SIMULATE_GPUS_NEED(cudaErrorInvalidValue, mode);
  std::swap(mode_of_thread, *mode);
  return cudaSuccess;
}
