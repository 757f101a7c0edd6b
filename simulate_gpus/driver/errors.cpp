// SPDX-License-Identifier: MIT
#include <cuda.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "driver/refusal.hpp"

namespace {

struct Error {
  int code;
  const char* name;
  const char* text;
};

#define SIMULATE_GPUS_DRIVER_ERROR(code, text) \
  { code, #code, text }
constexpr Error k_errors[] = {
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_SUCCESS, "no error"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU,
                               "no kernel image is available for execution on the device"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS,
                               "an illegal memory access was encountered"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_LAUNCH_TIMEOUT,
                               "the launch timed out and was terminated"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_ASSERT, "device-side assert triggered"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
                               "too many blocks in cooperative launch"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    SIMULATE_GPUS_DRIVER_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                               "operation not permitted when stream is capturing"),
};

const Error* find(int code) {
  const auto* const found = std::ranges::find(k_errors, code, &Error::code);
  return found == std::end(k_errors) ? nullptr : found;
}

// Of this thread's last refusal. Plain, as programs ask until the very end of a process.
thread_local int refused = CUDA_SUCCESS;
thread_local char text_of_refused[600];

}  // namespace

int simulate_gpus::refuse_in_driver(int code, const std::string& reason) {
  refused = code;
  const Error* const known = find(code);
  std::snprintf(text_of_refused, sizeof text_of_refused, "%s%s%s",
                known ? known->text : "unknown error", reason.empty() ? "" : ": ", reason.c_str());
  return code;
}

void simulate_gpus::forget_refusal() { refused = CUDA_SUCCESS; }

extern "C" {

CUresult cuGetErrorString(CUresult code, const char** text) {
  const Error* const known = find(code);
  *text = code != CUDA_SUCCESS && code == refused ? text_of_refused : known ? known->text : nullptr;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult code, const char** name) {
  const Error* const known = find(code);
  *name = known ? known->name : nullptr;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
}
