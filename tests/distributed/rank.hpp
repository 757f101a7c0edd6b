// SPDX-License-Identifier: MIT
//
// What one rank of the groups that communicator_torchrun.py starts knows, and how it says something.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>

namespace use_gpu::test {

inline std::string environment(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

inline bool is_victim() { return environment("RANK") == environment("VICTIM"); }

inline void die() { ::kill(::getpid(), SIGKILL); }

/// For the driver, which looks for what each rank said. In one write, so that lines stay whole.
inline void say(const std::string& text) {
  std::cout << "SAID by rank " + environment("RANK") + ": " + text + '\n' << std::flush;
}

/// Of groups that lose a rank: Gloo notices it at once, or now and then not before this time-out.
inline std::chrono::seconds until_noticed() {
  return std::chrono::seconds(std::stoi(environment("TIMEOUT_S")));
}

}  // namespace use_gpu::test
