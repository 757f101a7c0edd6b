// Runs warps: the lanes that are at the lowest place of the program go first, so that lanes that parted meet again.
#pragma once

#include <cstdint>

#include "ptx/execution/warp.hpp"

namespace simulate_gpus::ptx {

// Runs a warp until no lane of it can go on, or for about so many instructions.
// Throws: LaneFault, with `warp.pc` at the instruction.
void run_warp(Warp& warp, std::uint64_t budget);

// Lanes that have arrived at a barrier of their block; they go on when its phase has ended.
void arrive_at_barrier(Warp& warp, const Instruction& instruction, Mask lanes);
void release_barriers(Block& block);  // after lanes have ended
void wake_from_barriers(Warp& warp);

// Lanes at an instruction that needs all that its mask names: it runs for those that are there, in groups; the others
// wait. Whether all lanes of the warp that run go on; otherwise each has its own place from now on.
bool run_together(Warp& warp, const Instruction& instruction, Mask lanes);

}  // namespace simulate_gpus::ptx
