// SPDX-License-Identifier: MIT
//
// Addresses that a program reserves, and memory of GPUs that it maps there and takes away again, as LibTorch's
// expandable segments do. Each reservation is mapped twice, as an arena (arena.hpp) is, and is never
// given back to the system: a freed one is kept for the next.
#pragma once

#include <cstddef>
#include <optional>

#include "device_memory.hpp"

namespace simulate_gpus {

struct ReservedPlace {
  int device;  ///< of what is mapped in the reservation; the first, where nothing ever was
  void* host;  ///< the address at which the host reaches the byte
};

/// nullopt for all other addresses. Takes no lock.
std::optional<ReservedPlace> reserved_place(const void* address);

/// Whether memory is mapped there, and may be used.
bool is_mapped(const void* address, std::size_t bytes);

/// What is mapped there at once.
struct MappedRange {
  const void* begin;
  std::size_t bytes;
};
std::optional<MappedRange> mapping_at(const void* address);

/// What is mapped around the address without a gap, and may be used.
std::optional<Extent> mapped_around(const void* address);

}  // namespace simulate_gpus
