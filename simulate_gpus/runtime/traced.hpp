// SPDX-License-Identifier: MIT
//
// What the lines of a trace and its file are made of.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace simulated_cuda {

/// An event that was recorded: in which stream, and where the timeline has it.
struct Mark {
  std::string stream;
  int process = 0, row = 0;
  std::uint64_t unit = 0;
};

/// What a stream is given.
struct Traced {
  std::string_view category;  // operation, copy, event, wait, collective or graph
  std::string name;
  std::optional<std::uint64_t> bytes = {};
  std::optional<bool> is_pinned = {};
  std::string call = {};            // of a collective, as the program made it
  std::shared_ptr<Mark> mark = {};  // the event that is recorded, or waited for
};

/// What a stream is given while it is captured, and whether the capture began there.
struct CapturedTrace {
  int device, stream;
  bool is_origin;
  Traced given;
};

}  // namespace simulated_cuda
