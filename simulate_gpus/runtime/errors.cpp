// SPDX-License-Identifier: MIT
#include "errors.hpp"

#include <cuda_runtime_api.h>
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <utility>

#include "error_texts.hpp"
#include "lost_devices.hpp"
#include "settings.hpp"
#include "tool.hpp"

namespace simulate_gpus {
namespace {

thread_local cudaError_t last_error = cudaSuccess;
// The text of cudaGetErrorString for this thread's last error with a detail. No destructor:
// LibTorch calls CUDA until the very end of a process.
struct Detail {
  cudaError_t code;
  char text[600];
};
thread_local Detail detail_of_last = {};

// A refused launch that is not reported yet.
struct Refusal {
  std::mutex mutex;
  std::atomic<bool> is_unreported = false;
  std::string kernel, reason;
};

Refusal& refusal() {
  static auto* const refusal = new Refusal;
  return *refusal;
}

cudaError_t fail_with_refusal(const Refusal& refused) {
  return fail(cudaErrorNotSupported, "the CUDA kernel " + refused.kernel +
                                         " was launched, which simulated GPUs cannot run" +
                                         refused.reason);
}

std::atomic<bool> forked = false;
std::atomic<bool> has_lost_device = false;
std::atomic<bool> used = false;

}  // namespace

cudaError_t fail(cudaError_t code, const std::string& detail) {
  if (code == cudaSuccess) return code;
  last_error = code;
  if (detail.empty() && has_lost_device && code == error_of_lost_device())
    return fail(code, text_of_lost_device());
  if (calls_are_watched) tell(&Tool::fails, code);
  if (!detail.empty()) {
    detail_of_last.code = code;
    std::snprintf(detail_of_last.text, sizeof detail_of_last.text, "%s: %s",
                  find_text(code) ? find_text(code)->text : "CUDA error", detail.c_str());
  } else if (detail_of_last.code == code) {
    detail_of_last.code = cudaSuccess;
  }
  return code;
}

cudaError_t exchange_last_error(cudaError_t code) { return std::exchange(last_error, code); }

cudaError_t not_ready() {
  if (calls_are_watched) tell(&Tool::fails, cudaErrorNotReady);
  return cudaErrorNotReady;
}

cudaError_t enter(const char* function) {
  if (forked) return cudaErrorInitializationError;
  return ask(&Tool::fault, function);
}

cudaError_t refuse_lost() { return has_lost_device ? error_of_lost_device() : cudaSuccess; }

cudaError_t enter_with_devices(const char* function) {
  if (const cudaError_t lost = refuse_lost()) return lost;
  return enter_without_context(function);
}

cudaError_t enter_without_context(const char* function) {
  if (const cudaError_t refused = enter(function)) return refused;
  if (settings().driver_version < CUDART_VERSION) return cudaErrorInsufficientDriver;
  return settings().visible.empty() ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t refuse_launch(const std::string& kernel, const std::string& reason) {
  const std::scoped_lock lock(refusal().mutex);
  refusal().kernel = kernel;
  refusal().reason = reason;
  refusal().is_unreported = true;
  return fail_with_refusal(refusal());
}

cudaError_t unreported_refusal() {
  if (!refusal().is_unreported) return cudaSuccess;
  const std::scoped_lock lock(refusal().mutex);
  if (!refusal().is_unreported.exchange(false)) return cudaSuccess;
  return fail_with_refusal(refusal());
}

bool is_forked() { return forked; }

void note_use() {
  if (used.exchange(true)) return;
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
}

void note_lost_device() { has_lost_device = true; }

}  // namespace simulate_gpus

using namespace simulate_gpus;

cudaError_t simulate_gpus::enter_call(const char* function) { return enter_with_devices(function); }

extern "C" {

cudaError_t cudaGetLastError() {
  if (has_lost_device) static_cast<void>(fail(error_of_lost_device()));
  const cudaError_t code = last_error;
  last_error = cudaSuccess;
  if (code == cudaErrorNotSupported) refusal().is_unreported = false;
  return code;
}

cudaError_t cudaPeekAtLastError() {
  if (has_lost_device) static_cast<void>(fail(error_of_lost_device()));
  return last_error;
}

const char* cudaGetErrorString(cudaError_t code) {
  if (code != cudaSuccess && code == detail_of_last.code) return detail_of_last.text;
  const auto* const known = find_text(code);
  return known ? known->text : "unrecognized error code";
}

const char* cudaGetErrorName(cudaError_t code) {
  const auto* const known = find_text(code);
  return known ? known->name : "unrecognized error code";
}
}
