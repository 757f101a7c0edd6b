// What an arrival at a barrier of the block asks for: the mode of an instruction of Flow::barrier.
#pragma once

#include <cstdint>

namespace simulate_gpus::ptx {

enum BarrierMode : std::uint8_t {
  barrier_sync,
  barrier_arrive,
  barrier_popc,
  barrier_and,
  barrier_or
};

}  // namespace simulate_gpus::ptx
