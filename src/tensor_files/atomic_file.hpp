// SPDX-License-Identifier: MIT
//
// Writing a file so that at every moment, and after every failure, the old one or the new one is
// there.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace use_gpu::detail {

/// Writes the parts, one after the other, to a temporary file in the same folder, and moves it to
/// `file` when it is on the disk. An existing file keeps its mode; symbolic links are followed.
/// std::runtime_error, and no temporary file is left, if that fails or if `file` is something else
/// than a regular file; where only the last step fails, flushing the folder, the new file is there.
void write_atomically(const std::filesystem::path& file,
                      std::span<const std::span<const std::byte>> parts);

}  // namespace use_gpu::detail
