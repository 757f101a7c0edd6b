// SPDX-License-Identifier: MIT
//
// What nvcc embeds in a program: the same code for several architectures, as PTX or as machine code. Only the headers
// are read here; what is compressed stays so until a kernel is needed (kernel_library.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace simulate_gpus {

struct CodeImage {
  int capability = 0;  ///< 90 of sm_90
  bool is_ptx = false;
  bool is_compressed = false;
  std::span<const char> stored;
  std::size_t plain_bytes = 0;  ///< of what is compressed
};

/// nullopt for what is no fat binary, or a damaged one. Reads nothing beyond `most` bytes.
std::optional<std::vector<CodeImage>> read_fat_binary(const void* address, std::size_t most);

/// The fat binaries that a registered wrapper stands for: its own; or, where device code was linked
/// from several objects, each object's. Empty for what is no wrapper.
std::vector<const void*> fat_binaries_of(const void* wrapper);

/// "sm_80, sm_90"; empty if there is no machine code.
std::string machine_code_of(const std::vector<CodeImage>& images);

}  // namespace simulate_gpus
