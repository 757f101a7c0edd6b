// SPDX-License-Identifier: MIT
//
// CUPTI's records. Each newer struct begins as the older ones do, so the newest is written: readers that know an older
// one find its fields.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace simulate_gpus::cupti {

#include "cupti_records.inc"  // made by CMake: KernelRecord and others, by the newest structs' names

using CallRecord = CUpti_ActivityAPI;
using ExternalRecord = CUpti_ActivityExternalCorrelation;

/// The number that CUPTI has for "no stream" and "no event".
inline constexpr auto k_none = static_cast<std::uint32_t>(CUPTI_SYNCHRONIZATION_INVALID_VALUE);

/// Of the record of that kind; 0 for kinds that are not recorded.
std::size_t size_of(CUpti_ActivityKind kind);

/// Records that stand together: Kineto reads a call's external ids before what the call has started.
class Block {
 public:
  template <class Record>
  void add(const Record& record) {
    static_assert(sizeof(Record) % 8 == 0, "all records of a buffer are aligned");
    const auto* const first = reinterpret_cast<const std::uint8_t*>(&record);
    bytes_.insert(bytes_.end(), first, first + sizeof(Record));
    ++count_;
  }

  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return bytes_; }
  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  std::vector<std::uint8_t> bytes_;
  std::size_t count_ = 0;
};

}  // namespace simulate_gpus::cupti
