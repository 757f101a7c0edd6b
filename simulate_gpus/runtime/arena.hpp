// SPDX-License-Identifier: MIT
//
// The memory of one device: a file in memory, mapped twice. The address that programs see has no access rights, so host code that
// touches device memory faults; the other address, known only to the runtime and its kernels, is writable. It is never unmapped, so an
// address of device memory never becomes one of host memory. Callers hold the lock of device_memory.cpp; only `seen` and `host` may be
// read without it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace simulate_gpus {

struct Arena {
  struct Used {
    std::size_t bytes;
    std::uint64_t id;  // no other allocation of the process has it
  };

  /// False if the machine has no address space for it.
  bool map();

  /// The offset of so many bytes, which are free no longer; none if there is no room for them.
  std::optional<std::size_t> take_free(std::size_t bytes);
  void add_free(std::size_t offset, std::size_t bytes);

  /// The allocation in which the offset lies; used.end() if there is none.
  [[nodiscard]] std::map<std::size_t, Used>::const_iterator find_used(std::size_t offset) const;

  std::atomic<char*> seen = nullptr;  // as programs see it
  std::atomic<char*> host = nullptr;
  int file = -1;                                      // stays open for other processes
  std::map<std::size_t, std::size_t> free;            // offset to size
  std::map<std::size_t, Used> used;                   // by their offsets
  std::uint64_t allocated_bytes = 0, peak_bytes = 0;  // with what virtual_memory.hpp maps
};

}  // namespace simulate_gpus
