// SPDX-License-Identifier: MIT
//
// cudaMemcpy and variants. Copies between pinned and device memory wait in their stream's queue.
// A small copy from pageable to pinned or device memory is staged, as by CUDA, and the call returns
// at once; any other copy from or to pageable memory is done when the call returns.
#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <vector>

#include "device_memory.hpp"
#include "devices.hpp"
#include "errors.hpp"
#include "interface.hpp"
#include "pinned_memory.hpp"
#include "rehearsal.hpp"
#include "rows.hpp"
#include "settings.hpp"
#include "streams.hpp"
#include "tool.hpp"

using namespace simulate_gpus;

namespace {

constexpr std::size_t k_staged_bytes = std::size_t{64} << 10;

// A plain copy is one row.
struct Copy {
  Rows to, from;  // of the same width and height

  [[nodiscard]] std::size_t bytes() const { return to.bytes(); }
};

bool is_pageable(const Rows& rows) { return !device_at(rows.address) && !is_pinned(rows.address); }

Copy copy_of(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
             std::size_t width, std::size_t height) {
  return {{to, to_pitch, width, height}, {const_cast<void*>(from), from_pitch, width, height}};
}

Copy row(void* to, const void* from, std::size_t bytes) {
  return copy_of(to, bytes, from, bytes, bytes, 1);
}

Given describe(const Copy& copy) {
  const auto to = device_at(copy.to.address), from = device_at(copy.from.address);
  if (to && from) {
    const bool is_within = *to == *from;
    return {.kind = is_within ? Kind::within : Kind::between,
            .name = is_within ? "copy within a device" : "copy device to device",
            .bytes = copy.bytes(),
            .to = *to,
            .from = *from};
  }
  return {.kind = to ? Kind::to_device : Kind::to_host,
          .name = to ? "copy host to device" : "copy device to host",
          .bytes = copy.bytes(),
          .is_pinned = is_pinned(to ? copy.from.address : copy.to.address),
          .to = to.value_or(Given::k_host),
          .from = from.value_or(Given::k_host)};
}

bool is_within_host(const Copy& copy) {
  return !device_at(copy.to.address) && !device_at(copy.from.address);
}

void tell_copy(CUstream_st& stream, const Copy& copy) {
  if (!is_within_host(copy)) tell_given(stream, describe(copy));
}

// Tells which rows are read and written. Pageable memory is the host's alone.
void tell_uses(CUstream_st& stream, const Copy& copy) {
  if (!settings().check || copy.bytes() == 0) return;
  std::vector<MemoryRange> uses;
  if (!is_pageable(copy.from)) add_uses(uses, copy.from, false);
  if (!is_pageable(copy.to)) add_uses(uses, copy.to, true);
  tell(&Tool::uses, stream, describe(copy).name, uses);
}

// In a dry run large copies are not, unless both sides are the host's.
bool is_done(const Copy& copy) { return touches(copy.bytes()) || is_within_host(copy); }

void run(const Copy& copy) {
  if (copy.bytes() == 0) return;  // of addresses that may be null
  if (!is_done(copy)) return;
  auto* to = static_cast<char*>(host_address(copy.to.address));
  const auto* from = static_cast<const char*>(host_address(copy.from.address));
  for (std::size_t row = 0; row < copy.to.height; ++row) {
    std::memmove(to + row * copy.to.pitch, from + row * copy.from.pitch, copy.to.width);
  }
}

void wait_for(CUstream_st& stream, HostWait::Reason why = HostWait::Reason::copy) {
  tell_wait({why, &stream}, [&] { finish(stream); });
}

cudaError_t start(const Copy& copy, cudaStream_t handle) {
  if (rehearses()) {
    if (!device_at(copy.to.address)) return refuse_in_rehearsal();
    note_given(describe(copy));
    return cudaSuccess;
  }
  if (const cudaError_t refused = unreported_refusal()) return refused;
  for (const Rows& rows : {copy.to, copy.from}) {
    if (const cudaError_t wrong = check_rows(rows)) return fail(wrong);
  }
  CUstream_st& stream = stream_of(handle);
  tell_copy(stream, copy);
  if (is_captured(stream)) {
    submit(
        stream, [copy] { run(copy); }, is_done(copy) ? put_back(copy.to) : Work());
    tell_uses(stream, copy);
    return cudaSuccess;
  }
  if (is_pageable(copy.from) && copy.from.height == 1 && copy.bytes() <= k_staged_bytes &&
      !is_pageable(copy.to)) {
    const auto* const bytes = static_cast<const char*>(copy.from.address);
    const auto staged = std::make_shared<std::vector<char>>(bytes, bytes + copy.bytes());
    submit(stream,
           [to = copy.to.address, staged] { run(row(to, staged->data(), staged->size())); });
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

// Whether the kind, where it says that a side is a device's, is wrong: neither its memory nor pinned.
bool contradicts(cudaMemcpyKind kind, const Copy& copy) {
  const bool is_to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool is_from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return (is_to_device && is_pageable(copy.to)) || (is_from_device && is_pageable(copy.from));
}

// What a program may ask for.
cudaError_t check(const Copy& copy, cudaMemcpyKind kind) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
    return fail(cudaErrorInvalidMemcpyDirection);
  if (copy.bytes() == 0 || rehearses()) return cudaSuccess;
  const bool is_valid = copy.to.address && copy.from.address && !contradicts(kind, copy);
  return is_valid ? cudaSuccess : fail(cudaErrorInvalidValue);
}

cudaError_t start_checked(const Copy& copy, cudaMemcpyKind kind, cudaStream_t stream) {
  if (const cudaError_t wrong = check(copy, kind)) return wrong;
  return start(copy, stream);
}

// The host waits for it.
cudaError_t finish_copy(const Copy& copy, cudaMemcpyKind kind) {
  if (const cudaError_t failed = start_checked(copy, kind, nullptr)) return failed;
  wait_for(stream_of(nullptr));
  return take_failure();
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  return start_checked(row(to, from, bytes), kind, stream);
}

// The addresses tell the devices.
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                std::size_t bytes, cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  if (!exists(to_device) || !exists(from_device)) return fail(cudaErrorInvalidDevice);
  return start_checked(row(to, from, bytes), cudaMemcpyDefault, stream);
}

// Waits for earlier work, as CUDA's does; the host does not wait.
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                           std::size_t bytes) {
  SIMULATE_GPUS_PASS_ON();
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, nullptr);
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  return start_checked(copy_of(to, to_pitch, from, from_pitch, width, height), kind, stream);
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  SIMULATE_GPUS_ENTER();
  return finish_copy(row(to, from, bytes), kind);
}

cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                         std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  SIMULATE_GPUS_ENTER();
  return finish_copy(copy_of(to, to_pitch, from, from_pitch, width, height), kind);
}
}
