// SPDX-License-Identifier: MIT
//
// The safetensors format: eight bytes with the length of a JSON header, the header (dtype, shape
// and place of each tensor), the tensors' bytes. The reader trusts nothing: whatever the bytes are,
// it gives tensors that lie inside of them, or throws. Knows neither files nor LibTorch, so that it
// can be fuzzed. The same for the index of a model in several files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace use_gpu::detail {

/// A tensor as the format has it. `data` is row-major and little-endian, and not owned.
struct StoredTensor {
  std::string name;
  std::string dtype;  // "F32", "BF16", "BOOL" ...
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
  std::uint64_t checksum = 0;  // of one to be written
};

/// By XXH3.
[[nodiscard]] std::uint64_t checksum_of(std::span<const std::byte> data);

/// What a safetensors file has.
struct ParsedSafetensors {
  std::vector<StoredTensor> tensors;  // in the order of their data
  std::string doubt;  // why checksums of another program's file do not fit, or empty
};

/// Checks values of a tensor, one piece after the other.
using CheckPiece = std::function<void(std::span<const std::byte> piece)>;

/// Reads the values of a tensor, and gives all of them to `check`.
using ReadValues = std::function<void(const StoredTensor& x, const CheckPiece& check)>;

inline void read_in_place(const StoredTensor& x, const CheckPiece& check) { check(x.data); }

/// Checks the header, then each tensor's values as they are read, in the order of their data, also by
/// checksums if present; without `read` the header alone. std::runtime_error, with the reason, if a check
/// fails; but a checksum that does not fit is only a doubt where the header is not laid out as
/// file_start does it: Python programs copy the metadata to files with other values.
[[nodiscard]] ParsedSafetensors parse_safetensors(std::span<const std::byte> file,
                                                  const ReadValues& read = read_in_place);

/// Orders tensors as they follow each other in a file.
void sort_for_file(std::vector<StoredTensor>& tensors);

/// What a file begins with: the header, with its length in front. The tensors' data follows in their
/// order. Of data only the size matters, and to the length neither do checksums. std::runtime_error for a
/// name that the format cannot hold.
[[nodiscard]] std::string file_start(const std::vector<StoredTensor>& tensors);

/// The names of the tensors in each file; the files lie in the index's folder, or below it.
using ShardedIndex = std::map<std::string, std::set<std::string>>;

/// Reads the JSON object "weight_map" of an index ("model.safetensors.index.json"); what is beside
/// it is ignored. std::runtime_error, with the reason, if there is none, or if it names a tensor
/// twice or a file outside of the folder.
[[nodiscard]] ShardedIndex parse_sharded_index(std::string_view text);

}  // namespace use_gpu::detail
