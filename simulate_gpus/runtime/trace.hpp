// SPDX-License-Identifier: MIT
//
// What the GPUs are given, and what the program waits for, line by line in that order
// (simulate_gpus --trace).
#pragma once

#include <string>

#include "streams.hpp"

namespace simulated_cuda {

/// Whether someone wants the lines: their texts need not be made otherwise.
bool is_traced();

/// Writes "cuda:0 stream 1  what". During a capture the work is not done yet: "capture: what".
void trace(const CUstream_st& stream, const std::string& what);

/// Writes "host             waits for what".
void trace_host_wait(const std::string& what);

}  // namespace simulated_cuda
