// SPDX-License-Identifier: MIT
//
// Where the program is: Python's innermost function outside of torch; in a program in C++, the innermost
// function outside of LibTorch, with its line where the program has debug information.
#pragma once

#include <memory>

#include "runtime/interface.hpp"

namespace simulate_gpus {

/// The place where this thread is, to be told later.
std::shared_ptr<const ProgramPlace> here();

}  // namespace simulate_gpus
