// SPDX-License-Identifier: MIT
//
// What the program asked the simulated GPUs to do.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace simulated_cuda {

struct CopyCount {
  std::atomic<std::uint64_t> copies = 0, bytes = 0;

  void add(std::uint64_t size) {
    ++copies;
    bytes += size;
  }
};

struct Counts {
  CopyCount pinned_to_device, pageable_to_device, device_to_pinned, device_to_pageable;
  CopyCount between_devices, within_device;
  std::atomic<std::uint64_t> operations = 0, memory_sets = 0, graph_launches = 0;
  std::atomic<std::uint64_t> stream_synchronizations = 0, event_synchronizations = 0,
                             device_synchronizations = 0;
  std::atomic<std::uint64_t> pinned_allocations = 0;

  std::mutex mutex;
  std::map<std::string, CopyCount> collectives;  // by their names; guarded by the mutex
};

/// Of this process. What a graph does is counted at each replay.
Counts& counts();

/// Adds a collective of NCCL, or a message, by its name.
void count_collective(const std::string& name, std::uint64_t bytes);

}  // namespace simulated_cuda
