// SPDX-License-Identifier: MIT
//
// What torchrun passes to each process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace use_gpu::detail {

struct LaunchEnvironment {
  int rank;
  int size;
  int local_rank;
  std::string address;  // host name or IP address of rank 0's host
  std::uint16_t port;
  bool agent_serves;  // torchrun serves the store at that address; otherwise rank 0 does
  int restarts;       // as this machine's torchrun counts them

  /// Whether this process serves the store.
  [[nodiscard]] bool serves() const { return rank == 0 && !agent_serves; }
};

/// nullopt if none of RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT is set.
/// ArgumentError, with the variable, its value and what is accepted, if only some are set or one is
/// invalid.
[[nodiscard]] std::optional<LaunchEnvironment> read_launch_environment();

}  // namespace use_gpu::detail
