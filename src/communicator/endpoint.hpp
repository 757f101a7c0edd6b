// SPDX-License-Identifier: MIT
//
// Socket operations for MASTER_ADDR and MASTER_PORT: the local address that reaches them, listening
// there on rank 0, and waiting for a server there.
#pragma once

#include <chrono>
#include <string>

#include "communicator/launch_environment.hpp"

namespace use_gpu::detail {

/// CommunicatorError with this rank, the endpoint and the cause.
[[noreturn]] void throw_not_joined(const LaunchEnvironment& launch, const std::string& cause);

/// The address of this machine from which MASTER_ADDR is reached: loopback for loopback.
[[nodiscard]] std::string local_address(const LaunchEnvironment& launch);

/// A socket that listens at MASTER_ADDR alone; LibTorch's own would do so on every interface.
[[nodiscard]] int listen_at(const LaunchEnvironment& launch);

/// Returns when a server listens at the endpoint. LibTorch would wait too, but print a page per
/// failed attempt.
void wait_for_server(const LaunchEnvironment& launch,
                     std::chrono::steady_clock::time_point deadline);

}  // namespace use_gpu::detail
