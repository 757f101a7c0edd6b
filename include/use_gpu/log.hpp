// SPDX-License-Identifier: MIT
//
// How much use_gpu says on stderr. The library prints nothing; it logs what a user should act on at
// `warning`, and what it decided at `debug`:
//
//   use_gpu::set_log_level(use_gpu::LogLevel::debug);   // see each decision
//   use_gpu::set_log_level(use_gpu::LogLevel::off);     // see nothing at all
#pragma once

namespace use_gpu {

/// From all that there is to say down to nothing.
enum class LogLevel { debug, info, warning, error, off };

/// Sets the least level that is written, for the whole process, from any thread. At first:
/// `warning`.
void set_log_level(LogLevel level);

}  // namespace use_gpu
