// SPDX-License-Identifier: MIT
//
// cudaMemset and variants.
#include <cuda_runtime_api.h>

#include <cstring>
#include <vector>

#include "device_memory.hpp"
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

// Of values of `size` bytes, without gaps if it is not 1.
cudaError_t set(const Rows& rows, unsigned value, std::size_t size, cudaStream_t handle) {
  const Given given{.kind = Kind::set,
                    .name = "memory set",
                    .bytes = rows.bytes(),
                    .to = device_at(rows.address).value_or(Given::k_host),
                    .value = static_cast<int>(value)};
  if (rehearses()) {
    note_given(given);
    return cudaSuccess;
  }
  if (const cudaError_t wrong = check_rows(rows)) return fail(wrong);
  CUstream_st& stream = stream_of(handle);
  const bool is_done = touches(rows.bytes());
  tell_given(stream, given);
  const auto step = [rows, value, size, is_done] {
    if (!is_done || rows.is_empty()) return;
    auto* const place = static_cast<char*>(host_address(rows.address));
    for (std::size_t row = 0; row < rows.height && size == 1; ++row)
      std::memset(place + row * rows.pitch, static_cast<int>(value), rows.width);
    for (std::size_t offset = 0; offset < rows.width && size > 1; offset += size)
      std::memcpy(place + offset, &value, size);
  };
  submit(stream, step, is_captured(stream) && is_done ? put_back(rows) : Work());
  if (settings().check) {
    std::vector<MemoryRange> uses;
    add_uses(uses, rows, true);
    tell(&Tool::uses, stream, "memory set", uses);
  }
  return cudaSuccess;
}

// A device reaches its own memory and pinned memory.
cudaError_t set_checked(const Rows& rows, unsigned value, std::size_t size, cudaStream_t stream) {
  const bool is_reached = rows.address && (device_at(rows.address) || is_pinned(rows.address));
  if (!rows.is_empty() && !rehearses() && (!is_reached || rows.pitch < rows.width))
    return fail(cudaErrorInvalidValue);
  return set(rows, value, size, stream);
}

cudaError_t set_now(const Rows& rows, unsigned value, std::size_t size = 1) {
  if (const cudaError_t failed = set_checked(rows, value, size, nullptr)) return failed;
  CUstream_st& stream = stream_of(nullptr);
  tell_wait({HostWait::Reason::copy, &stream}, [&] { finish(stream); });
  return take_failure();
}

}  // namespace

cudaError_t simulate_gpus::set_values(void* address, unsigned value, std::size_t size,
                                      std::size_t count, cudaStream_t stream, bool waits) {
  const Call told_call("cudaMemset");
  if (const cudaError_t refused = enter_with_devices("cudaMemset")) return fail(refused);
  if (count > SIZE_MAX / size || reinterpret_cast<std::uintptr_t>(address) % size != 0)
    return fail(cudaErrorInvalidValue);
  const Rows rows{address, count * size, count * size, 1};
  return waits ? set_now(rows, value, size) : set_checked(rows, value, size, stream);
}

extern "C" {

cudaError_t cudaMemset(void* address, int value, std::size_t bytes) {
  SIMULATE_GPUS_ENTER();
  return set_now({address, bytes, bytes, 1}, static_cast<unsigned>(value));
}

cudaError_t cudaMemset2D(void* address, std::size_t pitch, int value, std::size_t width,
                         std::size_t height) {
  SIMULATE_GPUS_ENTER();
  return set_now({address, pitch, width, height}, static_cast<unsigned>(value));
}

cudaError_t cudaMemsetAsync(void* address, int value, std::size_t bytes, cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  return set_checked({address, bytes, bytes, 1}, static_cast<unsigned>(value), 1, stream);
}

cudaError_t cudaMemset2DAsync(void* address, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t stream) {
  SIMULATE_GPUS_ENTER();
  return set_checked({address, pitch, width, height}, static_cast<unsigned>(value), 1, stream);
}
}
