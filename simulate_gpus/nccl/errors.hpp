// SPDX-License-Identifier: MIT
//
// How NCCL's functions fail.
#pragma once

#include <string>

namespace simulate_gpus::nccl {

/// Remembers the reason for ncclGetLastError, and returns the code, an ncclResult_t.
/// Without nccl.h: not_offered.cpp defines functions of which it knows the name.
int refuse_in_nccl(int code, const std::string& reason);

/// The last reason in this process, of any thread: c10d asks from another one. Empty if nothing was
/// refused.
[[nodiscard]] std::string last_refusal();

}  // namespace simulate_gpus::nccl
