// SPDX-License-Identifier: MIT
#include "errors.hpp"

#include <cuda_runtime_api.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>

#include "settings.hpp"
#include "tool.hpp"

namespace simulate_gpus {
namespace {

struct ErrorText {
  cudaError_t code;
  const char* name;
  const char* text;
};

// The errors that LibTorch or a program can meet here, with CUDA's own texts.
#define SIMULATE_GPUS_ERROR(code, text) \
  { code, #code, text }
constexpr ErrorText k_errors[] = {
    SIMULATE_GPUS_ERROR(cudaSuccess, "no error"),
    SIMULATE_GPUS_ERROR(cudaErrorInvalidValue, "invalid argument"),
    SIMULATE_GPUS_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    SIMULATE_GPUS_ERROR(cudaErrorInitializationError, "initialization error"),
    SIMULATE_GPUS_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    SIMULATE_GPUS_ERROR(cudaErrorInvalidSymbol, "invalid device symbol"),
    SIMULATE_GPUS_ERROR(cudaErrorStubLibrary, "CUDA driver is a stub library"),
    SIMULATE_GPUS_ERROR(cudaErrorInsufficientDriver,
                        "CUDA driver version is insufficient for CUDA runtime version"),
    SIMULATE_GPUS_ERROR(cudaErrorDevicesUnavailable,
                        "CUDA-capable device(s) is/are busy or unavailable"),
    SIMULATE_GPUS_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    SIMULATE_GPUS_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    SIMULATE_GPUS_ERROR(cudaErrorNoKernelImageForDevice,
                        "no kernel image is available for execution on the device"),
    SIMULATE_GPUS_ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    SIMULATE_GPUS_ERROR(cudaErrorOperatingSystem,
                        "OS call failed or operation not supported on this OS"),
    SIMULATE_GPUS_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    SIMULATE_GPUS_ERROR(cudaErrorSymbolNotFound, "named symbol not found"),
    SIMULATE_GPUS_ERROR(cudaErrorNotReady, "device not ready"),
    SIMULATE_GPUS_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    SIMULATE_GPUS_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    SIMULATE_GPUS_ERROR(cudaErrorAssert, "device-side assert triggered"),
    SIMULATE_GPUS_ERROR(cudaErrorHostMemoryAlreadyRegistered,
                        "part or all of the requested memory range is already mapped"),
    SIMULATE_GPUS_ERROR(cudaErrorHostMemoryNotRegistered,
                        "pointer does not correspond to a registered memory region"),
    SIMULATE_GPUS_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    SIMULATE_GPUS_ERROR(cudaErrorNotSupported, "operation not supported"),
    SIMULATE_GPUS_ERROR(cudaErrorSystemNotReady, "system not yet initialized"),
    SIMULATE_GPUS_ERROR(cudaErrorSystemDriverMismatch,
                        "system has unsupported display driver / cuda driver combination"),
    SIMULATE_GPUS_ERROR(cudaErrorCompatNotSupportedOnDevice,
                        "forward compatibility was attempted on non supported HW"),
    SIMULATE_GPUS_ERROR(cudaErrorStreamCaptureUnsupported,
                        "operation not permitted when stream is capturing"),
    SIMULATE_GPUS_ERROR(cudaErrorStreamCaptureMerge,
                        "operation would result in a merge of separate capture sequences"),
    SIMULATE_GPUS_ERROR(cudaErrorCapturedEvent,
                        "operation not permitted on an event last recorded in a capturing stream"),
    SIMULATE_GPUS_ERROR(cudaErrorStreamCaptureUnmatched,
                        "operation should be on the stream that began the capture"),
    SIMULATE_GPUS_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    SIMULATE_GPUS_ERROR(
        cudaErrorStreamCaptureImplicit,
        "operation would make the legacy stream depend on a capturing blocking stream"),
    SIMULATE_GPUS_ERROR(cudaErrorStreamCaptureInvalidated,
                        "operation failed due to a previous error during capture"),
    SIMULATE_GPUS_ERROR(cudaErrorUnknown, "unknown error"),
};

const ErrorText* find_text(cudaError_t code) {
  const auto* const found = std::ranges::find(k_errors, code, &ErrorText::code);
  return found == std::end(k_errors) ? nullptr : found;
}

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
  std::string kernel;
};

Refusal& refusal() {
  static auto* const refusal = new Refusal;
  return *refusal;
}

cudaError_t fail_with_refusal(const std::string& kernel) {
  return fail(cudaErrorNotSupported,
              "the CUDA kernel " + kernel +
                  " was launched, which simulated GPUs cannot run. They only compute what "
                  "LibTorch also has for the CPU; see simulate_gpus/README.md");
}

std::atomic<bool> forked = false;
std::atomic<bool> used = false;

}  // namespace

cudaError_t fail(cudaError_t code, const std::string& detail) {
  if (code == cudaSuccess) return code;
  last_error = code;
  if (!detail.empty()) {
    detail_of_last.code = code;
    std::snprintf(detail_of_last.text, sizeof detail_of_last.text, "%s: %s",
                  find_text(code) ? find_text(code)->text : "CUDA error", detail.c_str());
  } else if (detail_of_last.code == code) {
    detail_of_last.code = cudaSuccess;
  }
  return code;
}

cudaError_t enter(const char* function) {
  if (forked) return cudaErrorInitializationError;
  return ask(&Tool::fault, function);
}

cudaError_t enter_with_devices(const char* function) {
  if (const cudaError_t refused = enter(function)) return refused;
  if (settings().driver_version < CUDART_VERSION) return cudaErrorInsufficientDriver;
  return settings().visible.empty() ? cudaErrorNoDevice : cudaSuccess;
}

cudaError_t refuse_launch(const std::string& kernel) {
  const std::scoped_lock lock(refusal().mutex);
  refusal().kernel = kernel;
  refusal().is_unreported = true;
  return fail_with_refusal(kernel);
}

cudaError_t unreported_refusal() {
  if (!refusal().is_unreported) return cudaSuccess;
  const std::scoped_lock lock(refusal().mutex);
  if (!refusal().is_unreported.exchange(false)) return cudaSuccess;
  return fail_with_refusal(refusal().kernel);
}

bool is_forked() { return forked; }

void note_use() {
  if (used.exchange(true)) return;
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t code = last_error;
  last_error = cudaSuccess;
  if (code == cudaErrorNotSupported) refusal().is_unreported = false;
  return code;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

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
