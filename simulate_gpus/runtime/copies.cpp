// SPDX-License-Identifier: MIT
//
// cudaMemcpy and variants. Copies between pinned and device memory wait in their stream's queue.
// A small copy from pageable to pinned or device memory is staged, as by CUDA, and the call returns
// at once; any other copy from or to pageable memory is done when the call returns.
#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "check.hpp"
#include "counts.hpp"
#include "device_memory.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "interface.hpp"
#include "pinned_memory.hpp"
#include "rehearsal.hpp"
#include "settings.hpp"
#include "streams.hpp"
#include "trace.hpp"

using namespace simulated_cuda;

namespace {

constexpr std::size_t k_staged_bytes = std::size_t{64} << 10;

// Rows of a matrix; a plain copy is one row.
struct Copy {
  void* to;
  std::size_t to_pitch;
  const void* from;
  std::size_t from_pitch;
  std::size_t width, height;

  [[nodiscard]] std::size_t bytes() const { return width * height; }
  [[nodiscard]] std::size_t extent(std::size_t pitch) const {
    return height == 0 ? 0 : pitch * (height - 1) + width;
  }
};

bool is_pageable(const void* address) { return !device_pointer(address) && !is_pinned(address); }

Copy row(void* to, const void* from, std::size_t bytes) {
  return {to, bytes, from, bytes, bytes, 1};
}

// Where it is counted, and what it is called in a trace.
struct Kind {
  CopyCount& total;
  const char* name;
  std::optional<bool> is_pinned = {};
};

Kind kind_of(const Copy& copy) {
  const auto to = device_pointer(copy.to), from = device_pointer(copy.from);
  if (to && from) {
    if (to->device == from->device) return {counts().within_device, "copy within a device"};
    return {counts().between_devices, "copy device to device"};
  }
  if (to) {
    const bool pinned = is_pinned(copy.from);
    return {pinned ? counts().pinned_to_device : counts().pageable_to_device, "copy host to device",
            pinned};
  }
  const bool pinned = is_pinned(copy.to);
  return {pinned ? counts().device_to_pinned : counts().device_to_pageable, "copy device to host",
          pinned};
}

void count_copy(const CUstream_st& stream, const Copy& copy) {
  if (!device_pointer(copy.to) && !device_pointer(copy.from)) return;
  const auto& [total, name, pinned] = kind_of(copy);
  count(stream, [&counted = total, bytes = copy.bytes()] { counted.add(bytes); });
  if (is_traced()) trace(stream, {"copy", name, copy.bytes(), pinned});
}

// Tells --check which rows are read and written. Pageable memory is the host's alone.
void check_copy(CUstream_st& stream, const Copy& copy) {
  if (!is_checked()) return;
  std::vector<simulated_cuda_range> ranges;
  const auto add = [&](const void* address, std::size_t pitch, bool writes) {
    if (is_pageable(address)) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const bool is_dense = pitch == copy.width;
    for (std::size_t row = 0; row < (is_dense ? 1 : copy.height); ++row) {
      ranges.push_back({begin + row * pitch,
                        begin + row * pitch + (is_dense ? copy.bytes() : copy.width), writes});
    }
  };
  if (copy.bytes() == 0) return;
  add(copy.from, copy.from_pitch, false);
  add(copy.to, copy.to_pitch, true);
  check_operation(stream, kind_of(copy).name, ranges);
}

// What a copy overwrites, to be put back after a capture.
Work put_back(void* address, std::size_t bytes) {
  auto* const place = static_cast<char*>(simulated_cuda_host_address(address));
  return [place, before = std::vector<char>(place, place + bytes)] {
    std::memcpy(place, before.data(), before.size());
  };
}

// In a dry run large copies are not, unless both sides are the host's.
bool is_done(const Copy& copy) {
  return touches(copy.bytes()) || (!device_pointer(copy.to) && !device_pointer(copy.from));
}

void run(const Copy& copy) {
  if (copy.width == 0) return;  // of addresses that may be null
  if (!is_done(copy)) return;
  auto* to = static_cast<char*>(simulated_cuda_host_address(copy.to));
  const auto* from = static_cast<const char*>(simulated_cuda_host_address(copy.from));
  for (std::size_t row = 0; row < copy.height; ++row) {
    std::memmove(to + row * copy.to_pitch, from + row * copy.from_pitch, copy.width);
  }
}

void wait_for(CUstream_st& stream) {
  if (is_traced()) trace_host_wait("copy", stream);
  finish(stream);
}

cudaError_t start(const Copy& copy, cudaStream_t handle) {
  if (const cudaError_t refused = refuse_in_rehearsal()) return refused;
  if (const cudaError_t refused = unreported_refusal()) return refused;
  if (!is_allocated(copy.to, copy.extent(copy.to_pitch)) ||
      !is_allocated(copy.from, copy.extent(copy.from_pitch))) {
    return fail(cudaErrorInvalidValue);
  }
  CUstream_st& stream = stream_of(handle);
  count_copy(stream, copy);
  if (is_captured(stream)) {
    submit(
        stream, [copy] { run(copy); },
        is_done(copy) ? put_back(copy.to, copy.extent(copy.to_pitch)) : Work());
    check_copy(stream, copy);
    return cudaSuccess;
  }
  if (is_pageable(copy.from) && copy.height == 1 && copy.width <= k_staged_bytes &&
      !is_pageable(copy.to)) {
    const auto* const bytes = static_cast<const char*>(copy.from);
    const auto staged = std::make_shared<std::vector<char>>(bytes, bytes + copy.width);
    submit(stream, [to = copy.to, staged] { run(row(to, staged->data(), staged->size())); });
    check_copy(stream, copy);
    return cudaSuccess;
  }
  submit(stream, [copy] { run(copy); });
  check_copy(stream, copy);
  if (is_pageable(copy.to)) check_host_waits(clock_of(stream));
  if (is_pageable(copy.from) || is_pageable(copy.to)) wait_for(stream);
  return cudaSuccess;
}

cudaError_t set(void* address, int value, std::size_t bytes, cudaStream_t handle) {
  if (const cudaError_t refused = refuse_in_rehearsal()) return refused;
  if (!is_allocated(address, bytes)) return fail(cudaErrorInvalidValue);
  CUstream_st& stream = stream_of(handle);
  count(stream, [] { ++counts().memory_sets; });
  if (is_traced()) trace(stream, {"operation", "memory set", bytes});
  const auto step = [place = simulated_cuda_host_address(address), value, bytes] {
    if (touches(bytes)) std::memset(place, value, bytes);
  };
  submit(stream, step, is_captured(stream) && touches(bytes) ? put_back(address, bytes) : Work());
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  check_operation(stream, "memory set", {{{begin, begin + bytes, true}}});
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  SIMULATED_CUDA_ENTER();
  return start(row(to, from, bytes), stream);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                cudaStream_t stream) {
  SIMULATED_CUDA_ENTER();
  return start(row(to, from, bytes), stream);
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind, cudaStream_t stream) {
  SIMULATED_CUDA_ENTER();
  return start({to, to_pitch, from, from_pitch, width, height}, stream);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  SIMULATED_CUDA_ENTER();
  if (const cudaError_t failed = start(row(to, from, bytes), nullptr)) return failed;
  check_host_waits(clock_of(stream_of(nullptr)));
  wait_for(stream_of(nullptr));
  return take_failure();
}

cudaError_t cudaMemsetAsync(void* address, int value, std::size_t bytes, cudaStream_t stream) {
  SIMULATED_CUDA_ENTER();
  return set(address, value, bytes, stream);
}

cudaError_t cudaMemset(void* address, int value, std::size_t bytes) {
  SIMULATED_CUDA_ENTER();
  if (const cudaError_t failed = set(address, value, bytes, nullptr)) return failed;
  check_host_waits(clock_of(stream_of(nullptr)));
  wait_for(stream_of(nullptr));
  return take_failure();
}
}
