// SPDX-License-Identifier: MIT
//
// What --check tells: a line for each bug, with both operations and where the program asked for them.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/device_memory.hpp"
#include "runtime/interface.hpp"
#include "tools/check/shadow_memory.hpp"

namespace simulate_gpus {

struct CheckedOperation {
  std::string name;
  std::string where;  ///< "cuda:0 stream 1", "a graph in cuda:0 stream 1", "the host"
  std::shared_ptr<const ProgramPlace> place;
};

/// The operation that this thread asks for now. Python's lock may be taken.
std::shared_ptr<const CheckedOperation> operation_here(std::string name, std::string where);

struct Bug {
  const char* kind;
  std::shared_ptr<const CheckedOperation> first, second;
  std::string text;  ///< what follows the two in the line
};

/// Of two operations that nothing orders, by their accesses to the same place: of a device, or of the host.
std::string text_of_race(const Access& earlier, bool earlier_wrote, const Access& later,
                         bool writes, std::optional<int> device);

/// Prints it, once, unless one of its operations is to be ignored. Python's lock may be taken.
void report(const Bug& bug);

/// The same for a handler of signals, whose thread may hold any lock: printed by tell_reports().
void report_later(Bug bug);
void tell_reports();

/// Tells how many bugs were found: whether there was none.
bool end_reports();

}  // namespace simulate_gpus
