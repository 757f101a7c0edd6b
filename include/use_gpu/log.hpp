// SPDX-License-Identifier: MIT
//
// How much use_gpu logs to stderr. It logs problems that a user should act on at `warning` or
// `error`, its decisions at `debug`, and prints nothing else:
//
//   use_gpu::set_log_level(use_gpu::LogLevel::debug);   // see each decision
//   use_gpu::set_log_level(use_gpu::LogLevel::off);     // see nothing at all
#pragma once

#include <use_gpu/export.hpp>

namespace USE_GPU_EXPORT use_gpu {

/// From most messages down to none.
enum class LogLevel { debug, info, warning, error, off };

/// Sets the lowest level that is written, for the whole process, from any thread. Default:
/// `warning`.
void set_log_level(LogLevel level);

}  // namespace use_gpu
