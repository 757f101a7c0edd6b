// SPDX-License-Identifier: MIT
#include "rows.hpp"

#include <cstdint>
#include <cstring>

#include "device_memory.hpp"

namespace simulate_gpus {

cudaError_t check_rows(const Rows& rows) {
  if (rows.is_empty()) return cudaSuccess;
  if (rows.pitch < rows.width) return cudaErrorInvalidPitchValue;
  if (rows.height > SIZE_MAX / rows.pitch) return cudaErrorInvalidValue;
  const std::size_t extent = rows.pitch * (rows.height - 1) + rows.width;
  return is_allocated(rows.address, extent) ? cudaSuccess : cudaErrorInvalidValue;
}

void add_uses(std::vector<MemoryRange>& uses, const Rows& rows, bool writes) {
  if (rows.is_empty()) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(rows.address);
  if (rows.pitch == rows.width) {
    uses.push_back({begin, begin + rows.bytes(), writes});
    return;
  }
  for (std::size_t row = 0; row < rows.height; ++row) {
    uses.push_back({begin + row * rows.pitch, begin + row * rows.pitch + rows.width, writes});
  }
}

Work put_back(const Rows& rows) {
  if (rows.is_empty()) return {};
  auto* const place = static_cast<char*>(host_address(rows.address));
  std::vector<char> before(rows.bytes());
  for (std::size_t row = 0; row < rows.height; ++row)
    std::memcpy(before.data() + row * rows.width, place + row * rows.pitch, rows.width);
  return [place, rows, before = std::move(before)] {
    for (std::size_t row = 0; row < rows.height; ++row)
      std::memcpy(place + row * rows.pitch, before.data() + row * rows.width, rows.width);
  };
}

}  // namespace simulate_gpus
