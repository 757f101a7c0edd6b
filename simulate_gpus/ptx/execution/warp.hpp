// The state of a warp and of its block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ptx/execution/instruction.hpp"
#include "ptx/execution/lanes.hpp"
#include "ptx/execution/launch_state.hpp"
#include "ptx/execution/memory.hpp"

namespace simulate_gpus::ptx {

struct Block;

struct Warp {
  Lanes lanes = {};
  Block* block = nullptr;
  GlobalMemory memory;
  std::size_t number = 0;  // in its block
  int first_thread = 0;

  Mask alive = 0;                      // has not ended
  Mask running = 0;                    // the lanes that run, all at `pc`
  Mask ready = 0;                      // those that could run, each at its own lane_pc
  Mask at_barrier = 0, gathering = 0;  // those that wait
  Mask voting = 0;                     // those at a barrier that gives them a result
  std::int32_t pc = 0;
  std::array<std::int32_t, lane_count> lane_pc = {};
  std::array<std::uint32_t, lane_count> lane_barrier = {};
  std::array<std::uint64_t, lane_count> lane_phase = {};
  std::uint64_t steps = 0, writes = 0;

  explicit Warp(LaunchState& launch) : memory(launch) {}
};

struct Barrier {
  std::vector<Mask> arrived;   // lanes of each warp
  std::uint32_t expected = 0;  // threads; 0: all of the block
  std::uint32_t votes = 0;     // of bar.red: the true ones
  std::uint32_t voters = 0;
  std::uint32_t released_votes = 0, released_voters = 0;  // of the phase that ended last
  std::uint64_t phase = 0;
};

struct Block {
  explicit Block(LaunchState& state) : launch(state) {}

  LaunchState& launch;
  Dimensions index = {};
  std::vector<std::byte> shared = {};
  std::vector<std::byte> local = {};  // of each thread
  std::vector<std::byte> registers = {};
  std::vector<Warp> warps = {};
  std::array<Barrier, 16> barriers = {};
  Mask awaited = 0;         // those barriers at which lanes have arrived
  std::string output = {};  // of printf
  std::size_t threads = 0, alive = 0;
  std::uint64_t turns = 0;

  // Whether the block repeats itself: a state that it had once, and how many writes of all blocks there were then.
  std::uint64_t known_state = 0, known_writes = 0, renewal = 0;
  std::uint64_t unwatched_steps = 0,
                repeated_steps = 0;  // since the last look; since its state came back
};

inline Dimensions thread_of(const Warp& warp, int lane) {
  const Dimensions size = warp.block->launch.request.block;
  const auto thread = static_cast<std::uint32_t>(warp.first_thread + lane);
  return {thread % size.x, thread / size.x % size.y, thread / (size.x * size.y)};
}

}  // namespace simulate_gpus::ptx
