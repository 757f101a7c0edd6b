// What has no effect here.
#pragma once

#include "ptx/execution/instruction.hpp"

namespace simulate_gpus::ptx {

void do_nothing(Warp& warp, const Instruction& instruction, Mask mask);

}  // namespace simulate_gpus::ptx
