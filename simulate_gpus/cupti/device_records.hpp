// SPDX-License-Identifier: MIT
//
// Records of what streams do: kernels, copies and memory sets.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "cupti/records.hpp"
#include "runtime/tool.hpp"

namespace simulate_gpus::cupti {

using DeviceRecord = std::variant<KernelRecord, CopyRecord, PeerCopyRecord, SetRecord>;

/// The stream as CUPTI names it.
std::uint32_t number_of(const CUstream_st& stream);
std::uint32_t context_of(int device);

/// The record of what the stream is given, without its times; nullopt for what has none, or is not to be recorded.
std::optional<DeviceRecord> record_of(const CUstream_st& stream, const Given& given,
                                      std::uint32_t correlation, bool is_async);

/// Sets the times, and adds the record. What a stream does begins after all that it did before.
void add_with_times(Block& block, DeviceRecord record, std::uint64_t begin, std::uint64_t end);

}  // namespace simulate_gpus::cupti
