// SPDX-License-Identifier: MIT
//
// What the library itself writes to the log of log.hpp.
#pragma once

#include <use_gpu/log.hpp>

#include <string_view>

namespace use_gpu::detail {

/// Writes one line to stderr if the level is enabled. Never throws.
///
/// Threads: any.
void log_message(LogLevel level, std::string_view text) noexcept;

/// Whether a message of that level would be written: check before building a long text.
[[nodiscard]] bool log_enabled(LogLevel level) noexcept;

}  // namespace use_gpu::detail
