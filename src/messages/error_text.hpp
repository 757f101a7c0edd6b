// SPDX-License-Identifier: MIT
//
// What an exception says. LibTorch's messages have several lines, source locations and a backtrace.
#pragma once

#include <exception>
#include <string>

namespace use_gpu::detail {

/// Its message, without the backtrace that LibTorch's exceptions add.
[[nodiscard]] std::string error_text(const std::exception& error);

/// The same of the exception that is being handled; to be called in a catch block.
[[nodiscard]] std::string current_error_text();

/// Its cause, in one line of at most 150 bytes without a source location: the first line of its
/// message, or as many of its sentences as fit; of an error of NCCL the detail that NCCL gives
/// further down.
[[nodiscard]] std::string error_cause(const std::exception& error);

}  // namespace use_gpu::detail
