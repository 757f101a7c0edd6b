// SPDX-License-Identifier: MIT
//
// The operation of LibTorch that a thread is in, where the program is followed (kernels/observers.cpp
// tells of each), and the place in the program.
#pragma once

#include <memory>
#include <string>

#include "interface.hpp"

namespace simulate_gpus {

/// Whether this thread is in an operation.
bool is_in_operation();

/// Whether the innermost is LibTorch's own, not a scope or a call of the program.
bool is_in_libtorchs_operation();

/// The innermost operation of this thread that does more than allocate, and the outermost where that is another:
/// "aten::_foreach_mul_ in Optimizer.step#AdamW.step". Empty outside of operations.
std::string current_operation();

/// Where the program is; null if nobody knows. Python's lock may be taken.
std::shared_ptr<const ProgramPlace> place_here();

/// By the first operation that asks for the current device, or the first thread that uses CUDA, `attach`
/// is called, again until it returns true. The thread then holds none of LibTorch's locks.
void meet_allocator();

/// Whether it has returned true: from then on each block is known.
bool knows_blocks();

}  // namespace simulate_gpus
