// SPDX-License-Identifier: MIT
//
// Pinned memory whose use by the host is noticed (simulate_gpus --check). While a copy of a stream uses
// it, the pages that the host sees lack the access rights that would disturb that copy: the host's
// access faults, is reported, and goes on. The runtime itself uses a second mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "tools/check/clock.hpp"

namespace simulate_gpus {

struct CheckedOperation;

/// A use of the memory by a stream.
struct Watch {
  std::uintptr_t begin, end;
  bool writes;
  std::size_t stream;    ///< its number in clocks
  std::uint64_t number;  ///< of the operation in its stream
  std::shared_ptr<const CheckedOperation> operation;
};

void* allocate_watched(std::size_t bytes);

/// False if it is not such memory.
bool release_watched(void* address);

/// Where the runtime finds the byte; null if it is not such memory.
void* unwatched_address(const void* address);

/// The host may not disturb this use. Nothing if it is not such memory.
void watch(Watch watch);

/// The uses that the clock knows are over.
void end_watches(const Clock& known);

/// The host's access to this byte has faulted: it may go on from now on. nullopt if it is not such
/// memory; else the use that the access disturbs, if there is one.
std::optional<std::optional<Watch>> host_accesses(const void* address, bool writes);

}  // namespace simulate_gpus
