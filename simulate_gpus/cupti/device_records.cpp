// SPDX-License-Identifier: MIT
#include "cupti/device_records.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "cupti/kernel_names.hpp"
#include "cupti/kinds.hpp"
#include "runtime/streams.hpp"

namespace simulate_gpus::cupti {
namespace {

// As CUPTI numbers the default stream of a context.
constexpr std::uint32_t k_default_stream = 7;

template <class Record>
Record begin_record(CUpti_ActivityKind kind, const CUstream_st& stream, std::uint32_t correlation) {
  Record record{};
  record.kind = kind;
  record.deviceId = static_cast<std::uint32_t>(stream.device);
  record.contextId = context_of(stream.device);
  record.streamId = number_of(stream);
  record.correlationId = correlation;
  return record;
}

// Where nobody knows of blocks and threads, there is no block.
KernelRecord kernel_record(const CUstream_st& stream, const Given& given,
                           std::uint32_t correlation) {
  auto record =
      begin_record<KernelRecord>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, stream, correlation);
  record.name = name_of_kernel(given);
  record.gridId = correlation;
  const LaunchSize size = given.size.value_or(LaunchSize{{0, 0, 0}, {1, 1, 1}, 0});
  const auto number = [](auto value) { return static_cast<std::int32_t>(value); };
  record.gridX = number(size.grid[0]);
  record.gridY = number(size.grid[1]);
  record.gridZ = number(size.grid[2]);
  record.blockX = number(size.block[0]);
  record.blockY = number(size.block[1]);
  record.blockZ = number(size.block[2]);
  record.dynamicSharedMemory = number(size.shared_bytes);
  return record;
}

CUpti_ActivityMemoryKind memory_of(int device, bool is_pinned) {
  if (device != Given::k_host) return CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  return is_pinned ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED : CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
}

// The part that copies within and between devices have in common.
template <class Record>
Record copy_record(CUpti_ActivityKind kind, CUpti_ActivityMemcpyKind direction,
                   const CUstream_st& stream, const Given& given, std::uint32_t correlation,
                   bool is_async) {
  auto record = begin_record<Record>(kind, stream, correlation);
  const bool is_pinned = given.is_pinned.value_or(false);
  record.copyKind = static_cast<std::uint8_t>(direction);
  record.srcKind = static_cast<std::uint8_t>(memory_of(given.from, is_pinned));
  record.dstKind = static_cast<std::uint8_t>(memory_of(given.to, is_pinned));
  record.flags = is_async ? CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC : CUPTI_ACTIVITY_FLAG_NONE;
  record.bytes = *given.bytes;
  return record;
}

CopyRecord plain_copy_record(const CUstream_st& stream, const Given& given,
                             std::uint32_t correlation, bool is_async) {
  const auto direction = given.kind == Kind::to_device ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
                         : given.kind == Kind::to_host ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                                                       : CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
  return copy_record<CopyRecord>(CUPTI_ACTIVITY_KIND_MEMCPY, direction, stream, given, correlation,
                                 is_async);
}

PeerCopyRecord peer_copy_record(const CUstream_st& stream, const Given& given,
                                std::uint32_t correlation, bool is_async) {
  auto record =
      copy_record<PeerCopyRecord>(CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_MEMCPY_KIND_PTOP,
                                  stream, given, correlation, is_async);
  record.srcDeviceId = static_cast<std::uint32_t>(given.from);
  record.srcContextId = context_of(given.from);
  record.dstDeviceId = static_cast<std::uint32_t>(given.to);
  record.dstContextId = context_of(given.to);
  return record;
}

SetRecord set_record(const CUstream_st& stream, const Given& given, std::uint32_t correlation,
                     bool is_async) {
  auto record = begin_record<SetRecord>(CUPTI_ACTIVITY_KIND_MEMSET, stream, correlation);
  record.value = static_cast<std::uint32_t>(given.value);
  record.bytes = *given.bytes;
  record.memoryKind = static_cast<std::uint16_t>(memory_of(given.to, /*is_pinned=*/true));
  record.flags = is_async ? CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC : CUPTI_ACTIVITY_FLAG_NONE;
  return record;
}

struct Ends {
  std::mutex mutex;  // guards the rest
  std::uint32_t clock = 0;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> of_streams;
};

// Two threads may launch at once into one stream, whose work is then done at once too. Later than what it did before, and
// of some length, so that viewers draw it.
std::pair<std::uint64_t, std::uint64_t> fit(std::uint32_t device, std::uint32_t stream,
                                            std::uint64_t begin, std::uint64_t end) {
  static auto* const ends = new Ends;
  const std::scoped_lock lock(ends->mutex);
  if (std::exchange(ends->clock, clock_number()) != clock_number()) ends->of_streams.clear();
  std::uint64_t& last = ends->of_streams[{device, stream}];
  begin = std::max(begin, last);
  return {begin, last = std::max(end, begin + 1)};
}

}  // namespace

std::uint32_t number_of(const CUstream_st& stream) {
  return k_default_stream + static_cast<std::uint32_t>(stream.number);
}

std::uint32_t context_of(int device) { return static_cast<std::uint32_t>(device) + 1; }

std::optional<DeviceRecord> record_of(const CUstream_st& stream, const Given& given,
                                      std::uint32_t correlation, bool is_async) {
  switch (given.kind) {
    case Kind::operation:
    case Kind::collective:
      if (!is_enabled(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) return std::nullopt;
      return kernel_record(stream, given, correlation);
    case Kind::set:
      if (!is_enabled(CUPTI_ACTIVITY_KIND_MEMSET) || *given.bytes == 0) return std::nullopt;
      return set_record(stream, given, correlation, is_async);
    case Kind::between:  // CUPTI records these too where only the others are asked for
      if (!is_enabled(CUPTI_ACTIVITY_KIND_MEMCPY) && !is_enabled(CUPTI_ACTIVITY_KIND_MEMCPY2))
        return std::nullopt;
      if (*given.bytes == 0) return std::nullopt;
      return peer_copy_record(stream, given, correlation, is_async);
    case Kind::to_device:
    case Kind::to_host:
    case Kind::within:
      if (!is_enabled(CUPTI_ACTIVITY_KIND_MEMCPY) || *given.bytes == 0) return std::nullopt;
      return plain_copy_record(stream, given, correlation, is_async);
    case Kind::event:
    case Kind::wait:
      break;
  }
  return std::nullopt;
}

void add_with_times(Block& block, DeviceRecord record, std::uint64_t begin, std::uint64_t end) {
  std::visit(
      [&](auto& of_kind) {
        const auto [first, last] = fit(of_kind.deviceId, of_kind.streamId, begin, end);
        of_kind.start = first;
        of_kind.end = last;
        if constexpr (requires { of_kind.completed; }) of_kind.completed = last;
        block.add(of_kind);
      },
      record);
}

}  // namespace simulate_gpus::cupti
