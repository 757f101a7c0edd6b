// SPDX-License-Identifier: MIT
#include "device_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <vector>

#include "arena.hpp"
#include "interface.hpp"
#include "pinned_memory.hpp"
#include "settings.hpp"
#include "shared_memory.hpp"
#include "tool.hpp"
#include "virtual_memory.hpp"

namespace simulate_gpus {
namespace {

constexpr std::size_t k_granularity = 4096;  // a page, so that freed memory returns to the system
constexpr int k_fresh_byte = 0xCB;
constexpr std::size_t k_filled_bytes = std::size_t{2} << 20;

// Never destroyed: LibTorch frees memory until the very end of a process.
struct Memory {
  Memory() {
    const auto& others = settings().memory_of_others;
    std::copy_n(others.begin(), std::min(others.size(), of_others.size()), of_others.begin());
  }
  std::mutex mutex;  // of all but the addresses
  std::array<Arena, k_most_gpus> arenas;
  std::array<std::uint64_t, k_most_gpus> of_others{};  // bytes of each card
  std::uint64_t allocations = 0;
};

Memory& memory() {
  static auto* const memory = new Memory;
  return *memory;
}

std::uint64_t& bytes_of_others(int device) {
  const int card = settings().visible[static_cast<std::size_t>(device)];
  return memory().of_others[static_cast<std::size_t>(card)];
}

std::uint64_t free_bytes_locked(int device) {
  const auto used = settings().reserved_bytes + bytes_of_others(device) +
                    memory().arenas[static_cast<std::size_t>(device)].allocated_bytes;
  return settings().memory_bytes - std::min(used, settings().memory_bytes);
}

// Device and offset of what is in an arena.
std::optional<std::pair<int, std::size_t>> place_in_arena(const void* address) {
  static const auto& arenas = memory().arenas;
  static const std::size_t devices = settings().visible.size(), bytes = settings().memory_bytes;
  const auto* const byte = static_cast<const char*>(address);
  for (std::size_t device = 0; device < devices; ++device) {
    const char* const seen = arenas[device].seen;
    if (seen != nullptr && byte >= seen && byte < seen + bytes) {
      return std::pair{static_cast<int>(device), static_cast<std::size_t>(byte - seen)};
    }
  }
  return std::nullopt;
}

Arena& arena_of(int device) { return memory().arenas[static_cast<std::size_t>(device)]; }

void count(Arena& arena, std::size_t bytes) {
  arena.allocated_bytes += bytes;
  arena.peak_bytes = std::max(arena.peak_bytes, arena.allocated_bytes);
  ++memory().allocations;
}

}  // namespace

std::optional<int> device_at(const void* address) {
  if (const auto place = place_in_arena(address)) return place->first;
  if (const auto place = reserved_place(address)) return place->device;
  return std::nullopt;
}

void* allocate(int device, std::size_t bytes) {
  const std::scoped_lock lock(memory().mutex);
  Arena& arena = arena_of(device);
  if (arena.seen == nullptr && !arena.map()) return nullptr;
  if (bytes > settings().memory_bytes) return nullptr;
  bytes = (bytes + k_granularity - 1) / k_granularity * k_granularity;
  if (bytes > free_bytes_locked(device)) return nullptr;
  const auto offset = arena.take_free(bytes);
  if (!offset) return nullptr;
  count(arena, bytes);
  arena.used[*offset] = {bytes, memory().allocations};
  fill_fresh(arena.host + *offset, bytes);
  return arena.seen + *offset;
}

bool release(void* address) {
  const auto place = place_in_arena(address);
  if (!place) return false;
  const std::scoped_lock lock(memory().mutex);
  Arena& arena = arena_of(place->first);
  const auto found = arena.used.find(place->second);
  if (found == arena.used.end()) return false;
  const std::size_t offset = found->first, bytes = found->second.bytes;
  stop_sharing(address);
  arena.used.erase(found);
  arena.allocated_bytes -= bytes;
  madvise(arena.host + offset, bytes, MADV_REMOVE);
  tell(&Tool::frees, address, bytes);
  arena.add_free(offset, bytes);
  return true;
}

void release_all(int device) {
  Arena& arena = arena_of(device);
  std::vector<void*> addresses;
  {
    const std::scoped_lock lock(memory().mutex);
    for (const auto& each : arena.used) addresses.push_back(arena.seen + each.first);
  }
  for (void* address : addresses) release(address);
}

std::optional<Allocation> allocation_at(const void* address) {
  const auto place = place_in_arena(address);
  if (!place) return std::nullopt;
  const std::scoped_lock lock(memory().mutex);
  const Arena& arena = arena_of(place->first);
  const auto found = arena.find_used(place->second);
  if (found == arena.used.end()) return std::nullopt;
  const auto& [offset, used] = *found;
  return Allocation{arena.seen + offset, used.bytes, used.id, place->first, arena.file, offset};
}

bool is_allocated(const void* address, std::size_t bytes) {
  const auto place = place_in_arena(address);
  if (!place) return !reserved_place(address) || is_mapped(address, bytes);
  const std::scoped_lock lock(memory().mutex);
  const Arena& arena = arena_of(place->first);
  const auto found = arena.find_used(place->second);
  return found != arena.used.end() && bytes <= found->first + found->second.bytes - place->second;
}

std::optional<Extent> allocation_around(const void* address) {
  const auto place = place_in_arena(address);
  if (!place) return mapped_around(address);
  const std::scoped_lock lock(memory().mutex);
  const Arena& arena = arena_of(place->first);
  const auto found = arena.find_used(place->second);
  if (found == arena.used.end()) return std::nullopt;
  return Extent{arena.seen + found->first, found->second.bytes};
}

void fill_fresh(void* host, std::size_t bytes) {
  if (!settings().dry_run) std::memset(host, k_fresh_byte, std::min(bytes, k_filled_bytes));
}

bool take(int device, std::size_t bytes) {
  const std::scoped_lock lock(memory().mutex);
  if (bytes > free_bytes_locked(device)) return false;
  count(arena_of(device), bytes);
  return true;
}

void give_back(int device, std::size_t bytes) {
  const std::scoped_lock lock(memory().mutex);
  arena_of(device).allocated_bytes -= bytes;
}

std::uint64_t allocated_bytes(int device) {
  const std::scoped_lock lock(memory().mutex);
  return arena_of(device).allocated_bytes;
}

std::uint64_t free_bytes(int device) {
  const std::scoped_lock lock(memory().mutex);
  return free_bytes_locked(device);
}

std::uint64_t peak_allocated_bytes(int device) {
  const std::scoped_lock lock(memory().mutex);
  return arena_of(device).peak_bytes;
}

std::uint64_t num_allocations() {
  const std::scoped_lock lock(memory().mutex);
  return memory().allocations;
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

void* simulate_gpus::host_address(const void* address) {
  if (const auto place = place_in_arena(address)) {
    return arena_of(place->first).host + place->second;
  }
  if (const auto place = reserved_place(address)) return place->host;
  return runtimes_address(address);
}

AllocatedRange simulate_gpus::range_at(const void* address) {
  if (const auto found = allocation_at(address)) return {found->begin, found->bytes, found->id};
  const auto mapped = mapping_at(address);
  return mapped ? AllocatedRange{mapped->begin, mapped->bytes} : AllocatedRange{};
}

std::uint64_t simulated_cuda_allocated_bytes(int device) { return allocated_bytes(device); }
std::uint64_t simulated_cuda_free_bytes(int device) { return free_bytes(device); }

void simulated_cuda_set_bytes_of_others(int device, std::uint64_t bytes) {
  const std::scoped_lock lock(memory().mutex);
  bytes_of_others(device) = bytes;
}
