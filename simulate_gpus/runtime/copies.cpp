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

#include "device_memory.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "interface.hpp"
#include "pinned_memory.hpp"
#include "rehearsal.hpp"
#include "settings.hpp"
#include "streams.hpp"
#include "tool.hpp"

using namespace simulate_gpus;

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

bool is_pageable(const void* address) { return !device_at(address) && !is_pinned(address); }

Copy row(void* to, const void* from, std::size_t bytes) {
  return {to, bytes, from, bytes, bytes, 1};
}

Given describe(const Copy& copy) {
  const auto to = device_at(copy.to), from = device_at(copy.from);
  if (to && from) {
    if (*to == *from) return {Kind::within, "copy within a device", copy.bytes()};
    return {Kind::between, "copy device to device", copy.bytes()};
  }
  if (to) return {Kind::to_device, "copy host to device", copy.bytes(), is_pinned(copy.from)};
  return {Kind::to_host, "copy device to host", copy.bytes(), is_pinned(copy.to)};
}

void tell_copy(CUstream_st& stream, const Copy& copy) {
  if (device_at(copy.to) || device_at(copy.from)) tell_given(stream, describe(copy));
}

// Tells which rows are read and written. Pageable memory is the host's alone.
void tell_uses(CUstream_st& stream, const Copy& copy) {
  if (!settings().check) return;
  std::vector<MemoryRange> ranges;
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
  tell(&Tool::uses, stream, describe(copy).name, ranges);
}

// What a copy overwrites, to be put back after a capture.
Work put_back(void* address, std::size_t bytes) {
  auto* const place = static_cast<char*>(host_address(address));
  return [place, before = std::vector<char>(place, place + bytes)] {
    std::memcpy(place, before.data(), before.size());
  };
}

// In a dry run large copies are not, unless both sides are the host's.
bool is_done(const Copy& copy) {
  return touches(copy.bytes()) || (!device_at(copy.to) && !device_at(copy.from));
}

void run(const Copy& copy) {
  if (copy.width == 0) return;  // of addresses that may be null
  if (!is_done(copy)) return;
  auto* to = static_cast<char*>(host_address(copy.to));
  const auto* from = static_cast<const char*>(host_address(copy.from));
  for (std::size_t row = 0; row < copy.height; ++row) {
    std::memmove(to + row * copy.to_pitch, from + row * copy.from_pitch, copy.width);
  }
}

void wait_for(CUstream_st& stream, HostWait::Reason why = HostWait::Reason::copy) {
  tell_wait({why, &stream}, [&] { finish(stream); });
}

cudaError_t start(const Copy& copy, cudaStream_t handle) {
  if (const cudaError_t refused = refuse_in_rehearsal()) return refused;
  if (const cudaError_t refused = unreported_refusal()) return refused;
  if (!is_allocated(copy.to, copy.extent(copy.to_pitch)) ||
      !is_allocated(copy.from, copy.extent(copy.from_pitch))) {
    return fail(cudaErrorInvalidValue);
  }
  CUstream_st& stream = stream_of(handle);
  tell_copy(stream, copy);
  if (is_captured(stream)) {
    submit(
        stream, [copy] { run(copy); },
        is_done(copy) ? put_back(copy.to, copy.extent(copy.to_pitch)) : Work());
    tell_uses(stream, copy);
    return cudaSuccess;
  }
  if (is_pageable(copy.from) && copy.height == 1 && copy.width <= k_staged_bytes &&
      !is_pageable(copy.to)) {
    const auto* const bytes = static_cast<const char*>(copy.from);
    const auto staged = std::make_shared<std::vector<char>>(bytes, bytes + copy.width);
    submit(stream, [to = copy.to, staged] { run(row(to, staged->data(), staged->size())); });
    tell_uses(stream, copy);
    return cudaSuccess;
  }
  submit(stream, [copy] { run(copy); });
  tell_uses(stream, copy);
  if (is_pageable(copy.to)) {
    wait_for(stream);
  } else if (is_pageable(copy.from)) {
    wait_for(stream, HostWait::Reason::staging);
  }
  return cudaSuccess;
}

cudaError_t set(void* address, int value, std::size_t bytes, cudaStream_t handle) {
  if (const cudaError_t refused = refuse_in_rehearsal()) return refused;
  if (!is_allocated(address, bytes)) return fail(cudaErrorInvalidValue);
  CUstream_st& stream = stream_of(handle);
  tell_given(stream, {Kind::set, "memory set", bytes});
  const auto step = [place = host_address(address), value, bytes] {
    if (touches(bytes)) std::memset(place, value, bytes);
  };
  submit(stream, step, is_captured(stream) && touches(bytes) ? put_back(address, bytes) : Work());
  if (settings().check) {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const MemoryRange used{begin, begin + bytes, true};
    tell(&Tool::uses, stream, "memory set", std::span(&used, 1));
  }
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  return start(row(to, from, bytes), stream);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  return start(row(to, from, bytes), stream);
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind, cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  return start({to, to_pitch, from, from_pitch, width, height}, stream);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  SIMULATE_GPUS_ENTER();
  if (const cudaError_t failed = start(row(to, from, bytes), nullptr)) return failed;
  wait_for(stream_of(nullptr));
  return take_failure();
}

cudaError_t cudaMemsetAsync(void* address, int value, std::size_t bytes, cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  return set(address, value, bytes, stream);
}

cudaError_t cudaMemset(void* address, int value, std::size_t bytes) {
  SIMULATE_GPUS_ENTER();
  if (const cudaError_t failed = set(address, value, bytes, nullptr)) return failed;
  wait_for(stream_of(nullptr));
  return take_failure();
}
}
