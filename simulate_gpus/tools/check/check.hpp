// SPDX-License-Identifier: MIT
//
// simulate_gpus --check: finds two uses of the same memory that nothing orders. On a GPU they give
// wrong values now and then; here the order of the program's calls decides, so all are found in one
// run, even if its values are right.
//
// The host is one: what any of its threads has waited for, all know. What the threads of a program do
// to each other is not looked at.
#pragma once

namespace simulate_gpus {

/// Adds the tool if --check was given.
void start_check();

}  // namespace simulate_gpus
