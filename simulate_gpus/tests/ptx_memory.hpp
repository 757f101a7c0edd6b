// Device memory for tests of the PTX engine: allocations of the host, at their own addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "ptx/ptx.hpp"

class TestMemory {
 public:
  simulate_gpus::ptx::Host host() {
    return {
        [this](std::uint64_t address) { return find(address); },
        [this](std::size_t bytes) { return allocate(bytes); },
        [this](std::uint64_t begin) { release(begin); },
        [this](std::string_view text, bool to_stderr) { (to_stderr ? errors : output) += text; }};
  }

  // As the runtime loads one: from the library's only name.
  std::shared_ptr<simulate_gpus::ptx::Module> load(std::string_view text) {
    return std::shared_ptr<simulate_gpus::ptx::Module>(
        simulate_gpus_ptx_load(text.data(), text.size(), host()));
  }

  simulate_gpus::ptx::Allocation allocate(std::size_t bytes) {
    auto* const place = static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
    if (place == nullptr) return {};
    const auto begin = reinterpret_cast<std::uint64_t>(place);
    const std::scoped_lock lock(mutex_);
    ends_[begin] = begin + bytes;
    return {begin, begin + bytes, place};
  }

  void release(std::uint64_t begin) {
    const std::scoped_lock lock(mutex_);
    ends_.erase(begin);
    std::free(reinterpret_cast<void*>(begin));
  }

  simulate_gpus::ptx::Allocation find(std::uint64_t address) {
    const std::scoped_lock lock(mutex_);
    auto found = ends_.upper_bound(address);
    if (found == ends_.begin()) return {};
    --found;
    if (address >= found->second) return {};
    return {found->first, found->second, reinterpret_cast<std::byte*>(found->first)};
  }

  std::size_t count() {
    const std::scoped_lock lock(mutex_);
    return ends_.size();
  }

  std::string output, errors;

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> ends_;
};
