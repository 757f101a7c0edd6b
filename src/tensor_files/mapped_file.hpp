// SPDX-License-Identifier: MIT
//
// A file's bytes as memory, mapped without a copy.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace use_gpu::detail {

class MappedFile {
 public:
  /// std::runtime_error if it cannot be opened, or is not a regular file.
  explicit MappedFile(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// Valid while this object lives; reading is fatal if the file was truncated.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace use_gpu::detail
