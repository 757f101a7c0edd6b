// SPDX-License-Identifier: MIT
//
// Files on the disk: seen as memory or read into it, and replaced atomically.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

namespace use_gpu::detail {

/// A file's bytes as memory, for as long as `memory` lives. Reading is fatal if the file was
/// truncated. Where they may be written to, that changes this memory alone.
struct MappedFile {
  std::span<const std::byte> bytes;
  std::shared_ptr<void> memory;
  std::shared_ptr<const int> fd = {};  // the file, open

  /// Reads some of `bytes` into `into`, without the page faults of their first use as memory. `see` is
  /// given each piece while it is in the processor's cache. std::runtime_error if that fails, or if the
  /// file was truncated.
  void read(std::span<const std::byte> some, std::byte* into,
            const std::function<void(std::span<const std::byte>)>& see) const;
};

/// std::runtime_error if it cannot be opened, or is not a regular file.
[[nodiscard]] MappedFile map_file(const std::filesystem::path& file, bool may_be_written = false);

/// Writes bytes at that place of a file; std::runtime_error if that fails.
using WriteAt = std::function<void(std::size_t place, std::span<const std::byte> bytes)>;

/// Lets `write` write a temporary file in the same folder, and moves it to `file` when it is on the disk:
/// at any time, and after any failure, that is the old one or the new one. An existing file keeps its
/// mode; symbolic links are followed. std::runtime_error, and no temporary file is left, if that fails or
/// if `file` exists and is not a regular file. If only the last step fails, flushing the folder, the new
/// file exists.
void write_atomically(const std::filesystem::path& file,
                      const std::function<void(const WriteAt&)>& write);

}  // namespace use_gpu::detail
