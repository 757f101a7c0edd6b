// SPDX-License-Identifier: MIT
//
// Replaces a file atomically: at any time, and after any failure, it is the old one or the new one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace use_gpu::detail {

/// Writes the parts, one after the other, to a temporary file in the same folder, and moves it to
/// `file` when it is on the disk. An existing file keeps its mode; symbolic links are followed.
/// std::runtime_error, and no temporary file is left, if that fails or if `file` exists and is not
/// a regular file. If only the last step fails, flushing the folder, the new file exists.
void write_atomically(const std::filesystem::path& file,
                      std::span<const std::span<const std::byte>> parts);

}  // namespace use_gpu::detail
