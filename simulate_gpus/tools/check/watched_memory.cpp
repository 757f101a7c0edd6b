// SPDX-License-Identifier: MIT
#include "tools/check/watched_memory.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/host_access.hpp"

namespace simulate_gpus {
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

std::uintptr_t page_size() {
  static const auto bytes = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// The first byte of the page.
std::uintptr_t page_of(std::uintptr_t byte) { return byte / page_size() * page_size(); }

void set_rights(std::uintptr_t begin, std::uintptr_t end, int rights) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)  an address
  mprotect(reinterpret_cast<void*>(begin), end - begin, rights);
}

// Reading disturbs what is written, writing disturbs all.
void protect(const char* seen, const Block& block) {
  const auto begin = reinterpret_cast<std::uintptr_t>(seen);
  set_rights(begin, begin + block.bytes, PROT_READ | PROT_WRITE);
  for (const bool writes : {false, true}) {
    for (const Watch& use : block.watches) {
      if (use.writes == writes)
        set_rights(page_of(use.begin), page_of(use.end - 1) + page_size(),
                   writes ? PROT_NONE : PROT_READ);
    }
  }
}

void drop(const char* seen, Block& block, const auto& condition) {
  const auto dropped = std::erase_if(block.watches, condition);
  if (dropped == 0) return;
  all().num_watches -= dropped;
  protect(seen, block);
}

// These bytes are watched no more.
void leave_out(const char* seen, Block& block, std::uintptr_t begin, std::uintptr_t end) {
  std::vector<Watch> left;
  for (const Watch& use : block.watches) {
    for (const auto& [from, to] : {std::pair(use.begin, std::min(use.end, begin)),
                                   std::pair(std::max(use.begin, end), use.end)}) {
      if (from >= to) continue;
      Watch& part = left.emplace_back(use);
      part.begin = from;
      part.end = to;
    }
  }
  all().num_watches += left.size() - block.watches.size();
  block.watches = std::move(left);
  protect(seen, block);
}

// A child of fork has a copy of its own, which nobody watches.
void separate_child() {
  for (auto& [seen, block] : all().blocks) {
    auto* const address = const_cast<char*>(seen);
    constexpr int k_flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(address, block.bytes, PROT_READ | PROT_WRITE, k_flags, -1, 0) == MAP_FAILED) continue;
    std::memcpy(address, block.own, block.bytes);
    munmap(std::exchange(block.own, address), block.bytes);
    block.watches.clear();
  }
  all().num_watches = 0;
  all().mutex.unlock();
}

}  // namespace

void* allocate_watched(std::size_t bytes) {
  static const int has_handlers =
      pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); }, separate_child);
  static_cast<void>(has_handlers);
  bytes = page_of(bytes + page_size() - 1);
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
  if (block.own != address) munmap(block.own, block.bytes);
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
  if (found == all().blocks.end() || watch.begin >= watch.end) return;
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
  const auto page = page_of(byte), next_page = page + page_size();
  if (disturbed) {
    drop(seen, block, [=](const Watch& use) { return use.begin < next_page && page < use.end; });
  } else {  // what it does not disturb, and only shares the page
    leave_out(seen, block, page, next_page);
  }
  return std::optional(disturbed);
}

}  // namespace simulate_gpus
