// SPDX-License-Identifier: MIT
#include "virtual_memory.hpp"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device_memory.hpp"
#include "devices.hpp"
#include "host_access.hpp"
#include "interface.hpp"
#include "physical_memory.hpp"
#include "settings.hpp"
#include "streams.hpp"
#include "tool.hpp"

namespace simulate_gpus {
namespace {

struct Mapping {
  std::size_t bytes;
  std::shared_ptr<PhysicalMemory> memory;
  bool is_accessible = false;
};

struct Reservation {
  std::atomic<char*> seen = nullptr;  // as programs see it; set last, and never changed
  char* host = nullptr;
  std::size_t bytes = 0;
  bool is_used = false;
  std::atomic<int> device = 0;
  std::map<std::size_t, Mapping> mappings;  // by their offsets
};

// Never destroyed: LibTorch frees memory until the very end of a process.
struct Reservations {
  std::mutex mutex;  // of all but what reserved_place reads
  std::array<Reservation, 4096> all;
  std::atomic<std::size_t> count = 0;
};

Reservations& reservations() {
  static auto* const reservations = new Reservations;
  return *reservations;
}

Reservation* find_reservation(const void* address) {
  const auto* const byte = static_cast<const char*>(address);
  const std::size_t count = reservations().count;
  for (std::size_t i = 0; i < count; ++i) {
    Reservation& each = reservations().all[i];
    if (byte >= each.seen && byte < each.seen + each.bytes) return &each;
  }
  return nullptr;
}

// A child of fork must not reach its parent's GPU.
void* map_range(void* place, std::size_t bytes, int protection, int flags, int file,
                std::size_t offset) {
  void* const mapped =
      mmap(place, bytes, protection, flags | MAP_NORESERVE, file, static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) return nullptr;
  madvise(mapped, bytes, MADV_DONTFORK);
  madvise(mapped, bytes, MADV_DONTDUMP);
  return mapped;
}

void* map_nothing(void* place, std::size_t bytes) {
  return map_range(place, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | (place ? MAP_FIXED : 0),
                   -1, 0);
}

// The mappings that make up the bytes; none where they do not.
std::vector<std::map<std::size_t, Mapping>::iterator> mappings_of(Reservation& reservation,
                                                                  std::size_t offset,
                                                                  std::size_t bytes) {
  if (bytes > reservation.bytes - offset) return {};
  std::vector<std::map<std::size_t, Mapping>::iterator> found;
  auto next = reservation.mappings.upper_bound(offset);
  if (next == reservation.mappings.begin()) return {};
  std::size_t end = std::prev(next)->first;
  for (auto each = std::prev(next); end < offset + bytes; ++each) {
    if (each == reservation.mappings.end() || each->first != end) return {};
    end += each->second.bytes;
    found.push_back(each);
  }
  return found;
}

std::size_t offset_in(const Reservation& reservation, const void* address) {
  return static_cast<std::size_t>(static_cast<const char*>(address) - reservation.seen);
}

// Whether the bytes begin and end where mappings do.
bool are_whole(Reservation& reservation, std::size_t offset, std::size_t bytes) {
  const auto found = mappings_of(reservation, offset, bytes);
  return !found.empty() && found.front()->first == offset &&
         found.back()->first + found.back()->second.bytes == offset + bytes;
}

}  // namespace

std::optional<ReservedPlace> reserved_place(const void* address) {
  const Reservation* const found = find_reservation(address);
  if (!found) return std::nullopt;
  return ReservedPlace{found->device, found->host + offset_in(*found, address)};
}

bool is_mapped(const void* address, std::size_t bytes) {
  const std::scoped_lock lock(reservations().mutex);
  Reservation* const reservation = find_reservation(address);
  if (!reservation) return false;
  const auto found = mappings_of(*reservation, offset_in(*reservation, address), bytes);
  return !found.empty() &&
         std::ranges::all_of(found, [](const auto& each) { return each->second.is_accessible; });
}

std::optional<MappedRange> mapping_at(const void* address) {
  const std::scoped_lock lock(reservations().mutex);
  Reservation* const reservation = find_reservation(address);
  if (!reservation) return std::nullopt;
  const auto found = mappings_of(*reservation, offset_in(*reservation, address), 1);
  if (found.empty()) return std::nullopt;
  return MappedRange{reservation->seen + found.front()->first, found.front()->second.bytes};
}

std::optional<Extent> mapped_around(const void* address) {
  const std::scoped_lock lock(reservations().mutex);
  Reservation* const reservation = find_reservation(address);
  if (!reservation) return std::nullopt;
  const std::size_t offset = offset_in(*reservation, address);
  std::optional<Extent> found;
  std::size_t begin = 0, end = 0;  // of what was followed without a gap
  for (const auto& [place, mapping] : reservation->mappings) {
    if (place != end || !mapping.is_accessible) begin = place;
    end = place + mapping.bytes;
    if (!mapping.is_accessible) begin = end;
    if (begin <= offset && offset < end) found = Extent{reservation->seen + begin, end - begin};
    if (found && begin > offset) break;
  }
  return found;
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

void* simulate_gpus::reserve_addresses(std::size_t bytes) {
  const std::scoped_lock lock(reservations().mutex);
  auto& all = reservations().all;
  const std::size_t count = reservations().count;
  for (std::size_t i = 0; i < count; ++i) {
    if (all[i].is_used || all[i].bytes != bytes) continue;
    all[i].is_used = true;
    return all[i].seen;
  }
  if (count == all.size()) return nullptr;
  Reservation& fresh = all[count];
  fresh.host = static_cast<char*>(map_nothing(nullptr, bytes));
  auto* const seen = static_cast<char*>(map_nothing(nullptr, bytes));
  if (fresh.host == nullptr || seen == nullptr) return nullptr;
  fresh.bytes = bytes;
  fresh.is_used = true;
  fresh.seen = seen;
  reservations().count = count + 1;
  report_host_access();
  return seen;
}

bool simulate_gpus::free_addresses(void* address, std::size_t bytes) {
  const std::scoped_lock lock(reservations().mutex);
  Reservation* const found = find_reservation(address);
  if (!found || found->seen != address || found->bytes != bytes || !found->mappings.empty()) {
    return false;
  }
  found->is_used = false;
  return true;
}

bool simulate_gpus::map_memory(void* address, std::size_t bytes, std::size_t offset,
                               const std::shared_ptr<PhysicalMemory>& memory) {
  const std::scoped_lock lock(reservations().mutex);
  Reservation* const found = find_reservation(address);
  if (!found || !found->is_used || offset > memory->bytes || bytes > memory->bytes - offset)
    return false;
  const std::size_t begin = offset_in(*found, address);
  const auto next = found->mappings.lower_bound(begin + bytes);
  const bool is_free = next == found->mappings.begin() ||
                       std::prev(next)->first + std::prev(next)->second.bytes <= begin;
  const int device = device_of_card(memory->card);
  if (!is_free || bytes > found->bytes - begin) return false;
  if (!found->mappings.empty() && found->device != device) return false;
  if (!map_range(found->host + begin, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                 memory->file, offset)) {
    return false;
  }
  if (!std::exchange(memory->is_filled, true)) fill_fresh(found->host + begin, bytes);
  found->device = device;
  found->mappings.emplace(begin, Mapping{bytes, memory});
  return true;
}

bool simulate_gpus::unmap_memory(void* address, std::size_t bytes) {
  finish_all();  // as CUDA would fault, where work still used it
  const std::scoped_lock lock(reservations().mutex);
  Reservation* const found = find_reservation(address);
  if (!found || !are_whole(*found, offset_in(*found, address), bytes)) return false;
  const std::size_t begin = offset_in(*found, address);
  for (const auto& each : mappings_of(*found, begin, bytes)) found->mappings.erase(each);
  map_nothing(found->host + begin, bytes);
  tell(&Tool::frees, address, bytes);
  return true;
}

bool simulate_gpus::set_access(const void* address, std::size_t bytes, bool is_accessible) {
  const std::scoped_lock lock(reservations().mutex);
  Reservation* const found = find_reservation(address);
  if (!found || !are_whole(*found, offset_in(*found, address), bytes)) return false;
  for (const auto& each : mappings_of(*found, offset_in(*found, address), bytes)) {
    each->second.is_accessible = is_accessible;
  }
  return true;
}

std::shared_ptr<PhysicalMemory> simulate_gpus::memory_at(const void* address) {
  const std::scoped_lock lock(reservations().mutex);
  Reservation* const found = find_reservation(address);
  if (!found) return nullptr;
  const auto mappings = mappings_of(*found, offset_in(*found, address), 1);
  return mappings.empty() ? nullptr : mappings.front()->second.memory;
}
