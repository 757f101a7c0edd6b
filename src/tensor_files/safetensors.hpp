// SPDX-License-Identifier: MIT
//
// The safetensors format: eight bytes with the length of a JSON header, the header (dtype, shape
// and place of each tensor), the tensors' bytes. The reader trusts nothing: whatever the bytes are,
// it gives tensors that lie inside of them, or throws. Knows neither files nor LibTorch, so that it
// can be fuzzed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace use_gpu::detail {

/// A tensor as the format has it. `data` is row-major and little-endian, and not owned.
struct StoredTensor {
  std::string name;
  std::string dtype;  // "F32", "BF16", "BOOL" ...
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

/// What a safetensors file has.
struct ParsedSafetensors {
  std::vector<StoredTensor> tensors;  // in the order of their data
  std::string doubt;  // why checksums of another program's file do not fit, or empty
};

/// Checks everything first, also checksums if present. std::runtime_error, with the reason, if a
/// check fails; but a checksum that does not fit is only a doubt where the header is not laid out
/// as make_safetensors does it: Python programs copy the metadata to files with other values.
[[nodiscard]] ParsedSafetensors parse_safetensors(std::span<const std::byte> file);

/// The parts of which a file consists: `header`, with its length in front, then each of `data`.
struct SafetensorsParts {
  std::string header;
  std::vector<std::span<const std::byte>> data;
};

/// A file of these tensors, with a checksum for each. std::runtime_error for a name that the format
/// cannot hold.
[[nodiscard]] SafetensorsParts make_safetensors(std::vector<StoredTensor> tensors);

}  // namespace use_gpu::detail
