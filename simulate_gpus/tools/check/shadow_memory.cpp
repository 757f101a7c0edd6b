// SPDX-License-Identifier: MIT
#include "tools/check/shadow_memory.hpp"

#include <iterator>
#include <utility>

namespace simulate_gpus {
namespace {

auto known_to(const Clock& clock) {
  return [&clock](const Access& access) { return clock.knows(access.stream, access.number); };
}

}  // namespace

// Afterwards no segment has the place inside.
void ShadowMemory::split(std::uintptr_t place) {
  const auto after = segments_.lower_bound(place);
  if (after == segments_.begin()) return;
  const auto around = std::prev(after);
  if (around->second.end <= place) return;
  segments_.emplace_hint(after, place, around->second);
  around->second.end = place;
}

void ShadowMemory::access(std::uintptr_t begin, std::uintptr_t end, const Access& access,
                          bool writes, const Clock& known, const Conflict& conflict) {
  if (begin >= end) return;
  split(begin);
  split(end);
  const auto is_known = known_to(known);
  std::uintptr_t place = begin;
  for (auto at = segments_.lower_bound(begin); place < end; ++at) {
    const bool is_new = at == segments_.end() || at->first > place;
    if (is_new) {  // not accessed so far
      const auto next = at == segments_.end() || at->first > end ? end : at->first;
      at = segments_.emplace_hint(at, place, Segment{next, {}, {}});
    }
    Segment& segment = at->second;
    if (segment.write.operation && !is_known(segment.write)) conflict(segment.write, true);
    if (writes) {
      for (const Access& read : segment.reads) {
        if (!is_known(read)) conflict(read, false);
      }
    } else {
      std::erase_if(segment.reads, is_known);
      segment.reads.push_back(access);
    }
    place = segment.end;
  }
  if (writes) {
    forget(begin, end);
    segments_.emplace(begin, Segment{end, access, {}});
  }
}

void ShadowMemory::forget(std::uintptr_t begin, std::uintptr_t end) {
  split(begin);
  split(end);
  segments_.erase(segments_.lower_bound(begin), segments_.lower_bound(end));
}

void ShadowMemory::forget_known(std::uintptr_t begin, std::uintptr_t end, const Clock& known) {
  if (begin >= end) return;
  split(begin);
  split(end);
  const auto is_known = known_to(known);
  const auto last = segments_.lower_bound(end);
  for (auto at = segments_.lower_bound(begin); at != last; ++at) {
    Segment& segment = at->second;
    std::erase_if(segment.reads, is_known);
    if (segment.write.operation && is_known(segment.write)) segment.write = {};
  }
}

}  // namespace simulate_gpus
