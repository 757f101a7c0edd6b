// SPDX-License-Identifier: MIT
//
// How much use_gpu says on stderr. The library prints nothing; it logs what a user should act on at
// `warning`, and what it decided at `debug`:
//
//   use_gpu::set_log_level(use_gpu::LogLevel::debug);   // see each decision
//   use_gpu::set_log_level(use_gpu::LogLevel::off);     // see nothing at all
#pragma once

#include <use_gpu/export.hpp>

#include <string_view>

namespace USE_GPU_EXPORT use_gpu {

/// From all that there is to say down to nothing.
enum class LogLevel { debug, info, warning, error, off };

/// Sets the least level that is written, for the whole process, from any thread. At first:
/// `warning`.
void set_log_level(LogLevel level);

/// Writes one line to stderr if the level is on, from any thread: the library's own way, and open to
/// a program that wants its lines beside the library's. Never throws.
void log_message(LogLevel level, std::string_view text) noexcept;

/// Whether a message of that level would be written: to ask before building a costly text.
[[nodiscard]] bool log_enabled(LogLevel level) noexcept;

}  // namespace use_gpu
