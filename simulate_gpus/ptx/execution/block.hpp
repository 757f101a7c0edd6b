// A block from its begin to its end, in turns.
#pragma once

#include <cstdint>

#include "ptx/execution/warp.hpp"

namespace simulate_gpus::ptx {

// The block's memory and registers, for any block of the launch.
void allocate_block(Block& block);
// Block number `number` of the grid is to begin.
void begin_block(Block& block, std::uint64_t number);
// Each warp runs once, for about so many instructions; whether the block has ended. Throws: Fault.
bool run_block(Block& block, std::uint64_t budget);

}  // namespace simulate_gpus::ptx
