// SPDX-License-Identifier: MIT
//
// When a GPU would do what it is given, if all work had a length in units: the picture that
// simulate_gpus --trace=FILE draws. A stream begins a work when it is free, has been given it, and
// what it waits for is over. So order, overlap and dependencies are right, and lengths say nothing
// of time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/streams.hpp"
#include "runtime/tool.hpp"

namespace simulate_gpus {

/// What is noted of an event: its stream, and where the picture has it.
struct Mark {
  std::string stream;
  int process = 0, row = 0;
  std::uint64_t unit = 0;
};
using SharedMark = std::shared_ptr<Mark>;

/// What the stream is given, as the trace calls it. Empty for a wait for an event that was not traced.
std::string name_of(const Given& given);

/// The stream, which is not captured, is given work.
void draw(const CUstream_st& stream, const Given& given);

/// The stream is given a graph. What other streams than the first gave to it has rows of its own.
void draw_launch(const CUstream_st& stream, std::span<const Captured> graph);

/// This thread waits.
void draw_host_wait(const char* why, const std::string& name, const HostWait& wait);

/// A counter of the device.
void draw_memory(int device, const char* what, std::uint64_t bytes);

}  // namespace simulate_gpus
