// SPDX-License-Identifier: MIT
#include "arena.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "host_access.hpp"
#include "settings.hpp"

namespace simulate_gpus {

bool Arena::map() {
  const std::size_t size = settings().memory_bytes;
  const int made = memfd_create("simulated GPU", MFD_CLOEXEC);
  if (made < 0 || ftruncate(made, static_cast<off_t>(size)) != 0) return false;
  const auto mapped = [&](int protection) {
    return mmap(nullptr, size, protection, MAP_SHARED | MAP_NORESERVE, made, 0);
  };
  void* const writable = mapped(PROT_READ | PROT_WRITE);
  void* const shown = mapped(PROT_NONE);
  if (writable == MAP_FAILED || shown == MAP_FAILED) {
    close(made);
    return false;
  }
  file = made;
  // A child of fork must not reach its parent's GPU.
  madvise(writable, size, MADV_DONTFORK);
  madvise(shown, size, MADV_DONTFORK);
  madvise(writable, size, MADV_DONTDUMP);
  free[0] = size - settings().reserved_bytes;
  host = static_cast<char*>(writable);
  seen = static_cast<char*>(shown);
  report_host_access();
  return true;
}

std::map<std::size_t, Arena::Used>::const_iterator Arena::find_used(std::size_t offset) const {
  const auto after = used.upper_bound(offset);
  if (after == used.begin()) return used.end();
  const auto found = std::prev(after);
  return offset < found->first + found->second.bytes ? found : used.end();
}

std::optional<std::size_t> Arena::take_free(std::size_t bytes) {
  const auto place = std::ranges::find_if(free, [&](const auto& f) { return f.second >= bytes; });
  if (place == free.end()) return std::nullopt;
  const auto [offset, size] = *place;
  free.erase(place);
  if (size > bytes) free[offset + bytes] = size - bytes;
  return offset;
}

void Arena::add_free(std::size_t offset, std::size_t bytes) {
  auto here = free.emplace(offset, bytes).first;
  if (const auto next = std::next(here); next != free.end() && offset + bytes == next->first) {
    here->second += next->second;
    free.erase(next);
  }
  if (here == free.begin()) return;
  if (const auto previous = std::prev(here); previous->first + previous->second == offset) {
    previous->second += here->second;
    free.erase(here);
  }
}

}  // namespace simulate_gpus
