// SPDX-License-Identifier: MIT
//
// What a process offers to others by the handles of CUDA IPC: a slot for each allocation and event. The slots lie in a
// file in memory, which has no name; whoever has a handle opens it by the number of the process. So nothing is left
// behind by a process that is killed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "shared_word.hpp"

namespace simulate_gpus {

/// All zeros is the initial state.
struct SharedSlot {
  std::atomic<std::uint64_t> serial;                      // of what is offered; 0: nothing
  std::atomic<std::uint64_t> recorded, finished, wanted;  // of an event (shared_events.hpp)
  SharedWord changes;
};

/// Where a slot is, in all processes.
struct SlotName {
  std::int32_t process;
  std::uint32_t number;
  std::uint64_t file, serial;  // as numbers are used again

  bool operator==(const SlotName&) const = default;
};

/// A slot of this process, until it is freed; nullopt if all are taken, or there is no memory for them.
std::optional<SlotName> take_slot();
void free_slot(const SlotName& name);

/// Null if its process has ended. What was in the slot may have been freed meanwhile. It is never unmapped.
SharedSlot* find_slot(const SlotName& name);

/// Whether it is a slot of this process.
bool is_own(const SlotName& name);

/// Whether `name` still names what is in the slot.
inline bool is_live(const SharedSlot& slot, const SlotName& name) {
  return slot.serial == name.serial;
}

/// By it others ask a process for something. Null if the process has ended, or has never asked for its own.
SharedWord* bell_of(int process);
SharedWord* own_bell();

bool is_running(int process);

/// A file of another process, by its number there; -1 if it cannot be opened.
int open_file_of(int process, int file);

}  // namespace simulate_gpus
