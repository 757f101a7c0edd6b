// SPDX-License-Identifier: MIT
//
// The JSON header of a safetensors file, syntax only: safetensors.cpp checks that the sizes are
// valid and fit the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace use_gpu::detail {

struct SafetensorsHeader {
  struct Entry {
    std::string name;
    std::string dtype;
    std::vector<std::uint64_t> shape;  // at most 64 dimensions, as in LibTorch
    std::uint64_t begin = 0, end = 0;  // of its data, counted from the end of the header
  };
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
};

/// std::runtime_error, which says what is wrong, for a text that is not such a header.
[[nodiscard]] SafetensorsHeader parse_header(std::string_view text);

/// The reverse. std::runtime_error for a name that JSON, or the format, cannot hold.
[[nodiscard]] std::string text_of(const SafetensorsHeader& header);

}  // namespace use_gpu::detail
