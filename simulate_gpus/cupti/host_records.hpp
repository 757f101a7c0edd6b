// SPDX-License-Identifier: MIT
//
// Records of what the host does: calls, waits, and events that it records.
#pragma once

#include <cstdint>

#include "cupti/functions.hpp"
#include "cupti/records.hpp"
#include "runtime/tool.hpp"

namespace simulate_gpus::cupti {

/// Of a call of this thread.
CallRecord call_record(const Function& function, std::uint32_t correlation, std::uint64_t begin,
                       std::uint64_t end, int result);

/// What is waited for, until now; `stream` and `event` may be k_none.
struct Waited {
  CUpti_ActivitySynchronizationType type;
  int device;
  std::uint32_t stream, event;
  std::uint64_t begin;
};
WaitRecord wait_record(const Waited& waited, std::uint32_t correlation);

/// Recorded now, as the event of that number.
EventRecord event_record(const CUstream_st& stream, std::uint32_t number,
                         std::uint32_t correlation);

}  // namespace simulate_gpus::cupti
