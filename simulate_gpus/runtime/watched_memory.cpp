// SPDX-License-Identifier: MIT
#include "watched_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "host_access.hpp"

namespace simulated_cuda {
namespace {

struct Block {
  char* own = nullptr;  // the second mapping
  std::size_t bytes = 0;
  std::vector<Watch> watches;
};

struct Blocks {
  std::mutex mutex;
  std::map<const char*, Block> blocks;  // by the address that the host sees
  std::atomic<std::size_t> num_watches = 0;
};

Blocks& all() {
  static auto* const all = new Blocks;  // never destroyed: used until the very end of a process
  return *all;
}

auto find(const void* address) {
  const auto* const byte = static_cast<const char*>(address);
  auto& blocks = all().blocks;
  const auto after = blocks.upper_bound(byte);
  if (after == blocks.begin()) return blocks.end();
  const auto found = std::prev(after);
  return byte < found->first + found->second.bytes ? found : blocks.end();
}

// Reading disturbs what is written, writing disturbs all.
void protect(const char* seen, const Block& block) {
  const int rights = block.watches.empty()                                ? PROT_READ | PROT_WRITE
                     : std::ranges::any_of(block.watches, &Watch::writes) ? PROT_NONE
                                                                          : PROT_READ;
  mprotect(const_cast<char*>(seen), block.bytes, rights);
}

void drop(const char* seen, Block& block, const auto& condition) {
  const auto dropped = std::erase_if(block.watches, condition);
  if (dropped == 0) return;
  all().num_watches -= dropped;
  protect(seen, block);
}

}  // namespace

void* allocate_watched(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  bytes = (bytes + page - 1) / page * page;
  const int file = memfd_create("pinned memory", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return nullptr;
  const auto map = [&] {
    return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  };
  void* const seen = map();
  void* const own = map();
  close(file);
  if (seen == MAP_FAILED || own == MAP_FAILED) return nullptr;
  const std::scoped_lock lock(all().mutex);
  all().blocks[static_cast<char*>(seen)] = {static_cast<char*>(own), bytes, {}};
  return seen;
}

bool release_watched(void* address) {
  const std::scoped_lock lock(all().mutex);
  const auto found = all().blocks.find(static_cast<char*>(address));
  if (found == all().blocks.end()) return false;
  const Block& block = found->second;
  all().num_watches -= block.watches.size();
  munmap(address, block.bytes);
  munmap(block.own, block.bytes);
  all().blocks.erase(found);
  return true;
}

void* unwatched_address(const void* address) {
  const std::scoped_lock lock(all().mutex);
  const auto found = find(address);
  if (found == all().blocks.end()) return nullptr;
  return found->second.own + (static_cast<const char*>(address) - found->first);
}

void watch(Watch watch) {
  const std::scoped_lock lock(all().mutex);
  // NOLINTNEXTLINE(performance-no-int-to-ptr)  an address
  const auto found = find(reinterpret_cast<const void*>(watch.begin));
  if (found == all().blocks.end()) return;
  report_host_access();
  found->second.watches.push_back(std::move(watch));
  ++all().num_watches;
  protect(found->first, found->second);
}

void end_watches(const Clock& known) {
  if (all().num_watches == 0) return;
  const std::scoped_lock lock(all().mutex);
  for (auto& [seen, block] : all().blocks) {
    drop(seen, block, [&](const Watch& use) { return known.knows(use.stream, use.number); });
  }
}

std::optional<std::optional<Watch>> host_accesses(const void* address, bool writes) {
  const std::scoped_lock lock(all().mutex);
  const auto found = find(address);
  if (found == all().blocks.end()) return std::nullopt;
  auto& [seen, block] = *found;
  const auto byte = reinterpret_cast<std::uintptr_t>(address);
  std::optional<Watch> disturbed;
  for (const Watch& use : block.watches) {
    if (use.begin <= byte && byte < use.end && (writes || use.writes)) disturbed = use;
  }
  // Also where it disturbs nothing, and only shares a page with what is watched.
  drop(seen, block, [](const Watch&) { return true; });
  return std::optional(disturbed);
}

}  // namespace simulated_cuda
