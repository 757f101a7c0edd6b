// SPDX-License-Identifier: MIT
//
// The launcher's command line.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/gpu_profiles.hpp"

namespace simulate_gpus {

struct LauncherOptions {
  const GpuProfile* gpu = nullptr;  // not null where parse_options() returns
  std::uint64_t memory = 0;         // bytes of each GPU
  bool deterministic = false, summary = false, trace = false, check = false, dry_run = false;
  std::string trace_file = {};  // empty: none
  std::string ignored = {};     // operations, with commas between them
  int count = 0;                // of GPUs
  char** program = nullptr;     // its name and arguments, and a null
};

/// Ends the process where the command line is wrong, or asks for help.
LauncherOptions parse_options(int argc, char** argv);

/// Ends the launcher with status 2, and the reason on stderr.
[[noreturn]] void stop(const std::string& why);

}  // namespace simulate_gpus
