// SPDX-License-Identifier: MIT
//
// Host memory that asynchronous copies may write to. It is the host's own, but remembered, as a
// driver does, and filled with NaN (-1 in integers), so that reading it too early shows.
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "backend.hpp"

namespace use_gpu::simulated {
namespace {

struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::kCPU};
    void* const data = allocate_aligned(bytes);
    if (data == nullptr) throw std::bad_alloc();
    std::memset(data, 0xff, bytes);
    const std::lock_guard lock(mutex_);
    sizes_[data] = bytes;
    return {data, data, &release, c10::kCPU};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }

  bool has(const void* data) {
    const std::lock_guard lock(mutex_);
    auto after = sizes_.upper_bound(data);
    if (after == sizes_.begin()) return false;
    const auto& [begin, bytes] = *--after;
    return static_cast<const char*>(data) < static_cast<const char*>(begin) + bytes;
  }

 private:
  static void release(void* data);

  std::mutex mutex_;
  std::map<const void*, std::size_t> sizes_;  // of each piece, by its begin
};

PinnedMemory& memory() {
  static auto* const instance = new PinnedMemory;  // tensors in static variables outlive main()
  return *instance;
}

void PinnedMemory::release(void* data) {
  {
    const std::lock_guard lock(memory().mutex_);
    memory().sizes_.erase(data);
  }
  std::free(data);
}

}  // namespace

c10::Allocator& pinned_allocator() noexcept { return memory(); }

bool is_pinned(const void* data) { return memory().has(data); }

}  // namespace use_gpu::simulated
