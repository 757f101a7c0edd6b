// SPDX-License-Identifier: MIT
//
// How NCCL's functions fail.
#pragma once

#include <string>

namespace simulated_nccl {

/// Remembers the reason for ncclGetLastError in this thread, and returns the code, an ncclResult_t.
/// Without nccl.h: not_offered.cpp defines functions of which it knows the name.
int refuse_in_nccl(int code, const std::string& reason);

/// That reason; empty if nothing was refused.
[[nodiscard]] const std::string& last_refusal();

}  // namespace simulated_nccl
