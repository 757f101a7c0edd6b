// SPDX-License-Identifier: MIT
//
// What the GPUs are given, and what the program waits for, in that order. Each is described once,
// for the lines (simulate_gpus --trace) and for the file (--trace=FILE).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "streams.hpp"
#include "traced.hpp"

namespace simulated_cuda {

/// Whether someone wants it: nothing need be described otherwise.
bool is_traced();

/// Writes "cuda:0 stream 1  what". During a capture the work is not done yet: "capture: what", and
/// in the file it is at each launch.
void trace(const CUstream_st& stream, const Traced& given);

/// A launch of a graph, whose capture gave all that.
void trace_launch(const CUstream_st& stream, const std::vector<CapturedTrace>& captured);

/// Writes "host             waits for what": a stream, an event or a device. `why` is the kind of
/// synchronization, or what else waits.
void trace_host_wait(const char* why, const CUstream_st& stream);
void trace_host_wait(const char* why, const std::shared_ptr<Mark>& mark);
void trace_host_wait(const char* why, std::optional<int> device);  // none: all of them

/// How many bytes of the device's memory are now `what`. In the file alone.
void trace_memory(int device, const char* what, std::uint64_t bytes);

}  // namespace simulated_cuda
