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

}  // namespace use_gpu::detail
