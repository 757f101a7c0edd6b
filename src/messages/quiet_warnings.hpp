// SPDX-License-Identifier: MIT
//
// LibTorch warns on stderr when it counts GPUs and the driver is too old, and when a GPU is first
// used. In queries these are debug output.
#pragma once

#include <c10/util/Exception.h>
#include <use_gpu/log.hpp>

namespace use_gpu::detail {

/// While it lives, LibTorch's warnings on this thread go to the log, at debug.
class QuietWarnings {
  struct ToLog final : c10::WarningHandler {
    void process(const c10::Warning& warning) override {
      log_message(LogLevel::debug, warning.msg());
    }
  };
  ToLog to_log_;
  c10::WarningUtils::WarningHandlerGuard guard_{&to_log_};
};

}  // namespace use_gpu::detail
