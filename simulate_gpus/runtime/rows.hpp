// SPDX-License-Identifier: MIT
//
// Rows of memory, which copies and memory sets use.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <vector>

#include "interface.hpp"
#include "queue.hpp"

namespace simulate_gpus {

/// `height` rows of `width` bytes, each `pitch` bytes after the one before.
struct Rows {
  void* address;
  std::size_t pitch, width, height;

  [[nodiscard]] std::size_t bytes() const { return width * height; }
  [[nodiscard]] bool is_empty() const { return width == 0 || height == 0; }
};

/// The error of rows that overlap, or that lie in no memory of a device or of the host.
[[nodiscard]] cudaError_t check_rows(const Rows& rows);

/// Adds the bytes of the rows to those that an operation uses.
void add_uses(std::vector<MemoryRange>& uses, const Rows& rows, bool writes);

/// What the rows hold now, to be put back after a capture.
[[nodiscard]] Work put_back(const Rows& rows);

}  // namespace simulate_gpus
