// SPDX-License-Identifier: MIT
//
// The memory of the simulated GPUs. Each has as much as the machine has, counts what it gave away,
// and is "out of memory" past that, so that device_memory() and running out of it can be tried.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <utility>

#include "backend.hpp"

namespace use_gpu::simulated {
namespace {

struct Block {
  void* data;
  std::size_t bytes;
  c10::DeviceIndex device;
};

struct Memory final : c10::DeviceAllocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    const auto device = current_device();
    if (bytes == 0) return {nullptr, device};
    const auto [free, total] = getMemoryInfo(device.index());
    TORCH_CHECK_WITH(OutOfMemoryError, bytes <= free, device, " is out of memory: asked for ",
                     bytes, " bytes, ", free, " of ", total, " are free");
    void* const data = allocate_aligned(bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, data != nullptr, device, ": the host has no memory for ",
                     bytes, " bytes");
    used_on(device.index()) += bytes;
    return {data, new Block{data, bytes, device.index()}, &release, device};
  }

  // Memory is given back with its Block, never by its address alone.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }

  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const std::size_t used = used_on(device);
    return {total_ - std::min(used, total_), total_};
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}  // nothing is cached
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}

 private:
  static void release(void* context);

  std::atomic<std::size_t>& used_on(c10::DeviceIndex device) {
    return used_.at(static_cast<std::size_t>(int{device}));
  }

  const std::size_t total_ = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                             static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::array<std::atomic<std::size_t>, k_most_devices> used_{};
};

Memory& memory() {
  static auto* const instance = new Memory;  // tensors in static variables outlive main()
  return *instance;
}

void Memory::release(void* context) {
  auto* const block = static_cast<Block*>(context);
  memory().used_on(block->device) -= block->bytes;
  std::free(block->data);
  delete block;
}

}  // namespace

void* allocate_aligned(std::size_t bytes) noexcept {
  constexpr std::size_t k_alignment = 64;
  return std::aligned_alloc(k_alignment, (bytes + k_alignment - 1) / k_alignment * k_alignment);
}

c10::DeviceAllocator& allocator() noexcept { return memory(); }

void register_allocator() { c10::SetAllocator(k_type, &memory()); }

}  // namespace use_gpu::simulated
