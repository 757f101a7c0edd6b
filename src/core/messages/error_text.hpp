// SPDX-License-Identifier: MIT
//
// What LibTorch says. The messages of its exceptions have several lines, source locations and a
// backtrace. It warns on stderr when it counts GPUs and the driver is too old, and when a GPU is first
// used; in queries these warnings are debug output.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

#include "core/messages/log_message.hpp"

namespace use_gpu::detail {

/// Its message, without the backtrace that LibTorch's exceptions add.
[[nodiscard]] std::string error_text(const std::exception& error);

/// The same of the exception that is being handled; to be called in a catch block.
[[nodiscard]] std::string current_error_text();

/// Its cause, in one line of at most 150 bytes without a source location: the first line of its
/// message, or as many of its sentences as fit; of an error of NCCL the detail that NCCL gives
/// further down.
[[nodiscard]] std::string error_cause(const std::exception& error);

/// While it lives, LibTorch's warnings on this thread go to the log, at debug.
class QuietWarnings final : c10::WarningHandler {
  void process(const c10::Warning& warning) override {
    log_message(LogLevel::debug, warning.msg());
  }
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

}  // namespace use_gpu::detail
