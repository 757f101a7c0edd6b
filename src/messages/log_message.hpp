// SPDX-License-Identifier: MIT
//
// The only way from the library to its log. spdlog stays behind it, in log.cpp: the fmt that
// Debian's spdlog uses and the one that LibTorch bundles cannot be seen by the same source file.
#pragma once

#include <use_gpu/log.hpp>

#include <string_view>

namespace use_gpu {

/// Writes one line at that level to stderr, if the level is on. Never throws.
void log_message(LogLevel level, std::string_view text) noexcept;

/// Whether a message of that level would be written: to ask before building a costly text.
[[nodiscard]] bool log_enabled(LogLevel level) noexcept;

}  // namespace use_gpu
