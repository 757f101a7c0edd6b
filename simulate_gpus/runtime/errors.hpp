// SPDX-License-Identifier: MIT
//
// How each of the runtime's functions begins and fails.
#pragma once

#include <driver_types.h>

#include <string>

#include "call.hpp"

namespace simulate_gpus {

/// Remembers an error for cudaGetLastError, in this thread, and returns it. `detail` is appended to
/// the text of cudaGetErrorString for it in this thread, until the next error.
cudaError_t fail(cudaError_t code, const std::string& detail = {});

/// Sets what cudaGetLastError returns next in this thread. Returns what it would have returned.
cudaError_t exchange_last_error(cudaError_t code);

/// cudaErrorNotReady, which is no error to remember.
cudaError_t not_ready();

/// Success, unless the program asked for a fault of this call, or the process was forked by one
/// that used a GPU. To be called first, with the function's own name.
cudaError_t enter(const char* function);

/// The same, and fails where the driver is too old or no device is visible, as nearly every function
/// of CUDA does.
cudaError_t enter_without_context(const char* function);

/// The same, and fails where a kernel has failed on the current device (lost_devices.hpp), as all do that use a context.
cudaError_t enter_with_devices(const char* function);

/// The error of that kernel; success if there was none.
cudaError_t refuse_lost();

/// Refuses a launch. LibTorch does not check the error of every launch; the next operation, copy or
/// synchronization returns an unchecked one, so that no value is read that was not computed.
cudaError_t refuse_launch(const std::string& kernel, const std::string& reason);
cudaError_t unreported_refusal();

/// Whether the caller has left out one of these.
bool is_any_null(const auto&... pointers) { return ((pointers == nullptr) || ...); }

/// This process has used CUDA: its forked children cannot.
void note_use();

/// From now on calls for a device that is lost fail.
void note_lost_device();

/// Whether this process was forked by one that has used CUDA.
bool is_forked();

}  // namespace simulate_gpus

/// How each function of the runtime begins.
#define SIMULATE_GPUS_ENTER()                                                                \
  const simulate_gpus::Call told_call(__func__);                                             \
  if (const cudaError_t refused = simulate_gpus::enter_with_devices(__func__); refused != 0) \
  return simulate_gpus::fail(refused)

/// How those begin that need no context: guards of LibTorch call them while an error is thrown.
#define SIMULATE_GPUS_ENTER_WITHOUT_CONTEXT()                                                   \
  if (const cudaError_t refused = simulate_gpus::enter_without_context(__func__); refused != 0) \
  return simulate_gpus::fail(refused)

/// How those begin that need no driver and no device.
#define SIMULATE_GPUS_ENTER_ANYWHERE()                                          \
  const simulate_gpus::Call told_call(__func__);                                \
  if (const cudaError_t refused = simulate_gpus::enter(__func__); refused != 0) \
  return simulate_gpus::fail(refused)

/// How those begin that call another one, which begins so.
#define SIMULATE_GPUS_PASS_ON() const simulate_gpus::Call told_call(__func__)

/// Fails with this error where one of the pointers is null: cudaErrorInvalidValue for what a function writes, say.
#define SIMULATE_GPUS_NEED(code, ...) \
  if (simulate_gpus::is_any_null(__VA_ARGS__)) return simulate_gpus::fail(code)
