// Barriers of a block, and the lanes of a warp that wait for each other.
#include <algorithm>

#include "ptx/execution/schedule.hpp"
#include "ptx/instructions/barriers.hpp"

namespace simulate_gpus::ptx {
namespace {

// A card counts warps: threads that a warp lacks, or that have ended, arrive with the others.
std::uint32_t arrived_threads(const Block& block, const Barrier& barrier) {
  std::uint32_t count = 0;
  for (const Warp& warp : block.warps) {
    const Mask arrived = barrier.arrived[warp.number];
    if (arrived == 0) continue;
    const bool is_whole = (warp.alive & ~arrived) == 0;
    count += is_whole ? lane_count : static_cast<std::uint32_t>(std::popcount(arrived));
  }
  return count;
}

bool is_complete(const Block& block, const Barrier& barrier) {
  if (barrier.expected != 0) return arrived_threads(block, barrier) >= barrier.expected;
  return std::ranges::all_of(block.warps, [&](const Warp& warp) {
    return (warp.alive & ~barrier.arrived[warp.number]) == 0;
  });
}

void try_release(Block& block, Barrier& barrier) {
  if (!is_complete(block, barrier)) return;
  block.awaited &= ~lane_bits[static_cast<std::size_t>(&barrier - block.barriers.data())];
  barrier.released_votes = barrier.votes;
  barrier.released_voters = barrier.voters;
  barrier.votes = barrier.voters = 0;
  std::ranges::fill(barrier.arrived, 0);
  ++barrier.phase;
}

// What bar.red gives to a lane that goes on.
void put_votes(Warp& warp, const Instruction& instruction, int lane, const Barrier& barrier) {
  const Slot result = instruction.slots[2];
  if (instruction.mode == barrier_popc) {
    warp.lanes.put(result, lane, barrier.released_votes);
    return;
  }
  const bool truth = instruction.mode == barrier_and
                         ? barrier.released_votes == barrier.released_voters
                         : barrier.released_votes != 0;
  warp.lanes.put_predicate(result, Mask{1} << lane, truth ? all_lanes : 0);
}

}  // namespace

void arrive_at_barrier(Warp& warp, const Instruction& instruction, Mask lanes) {
  Block& block = *warp.block;
  const int first = std::countr_zero(lanes);
  const std::uint32_t number = warp.lanes.get<std::uint32_t>(instruction.slots[0], first);
  if (number >= block.barriers.size())
    throw LaneFault{Kind::launch_failure,
                    "a barrier has the number " + std::to_string(number) + "; there are 16", first};
  Barrier& barrier = block.barriers[number];
  barrier.arrived.resize(block.warps.size());
  barrier.expected = instruction.slots[1] == no_slot
                         ? 0
                         : warp.lanes.get<std::uint32_t>(instruction.slots[1], first);
  if (instruction.mode >= barrier_popc) {
    const Mask read = warp.lanes.predicate(instruction.slots[3]);
    barrier.votes +=
        static_cast<std::uint32_t>(std::popcount((instruction.negated ? ~read : read) & lanes));
    barrier.voters += static_cast<std::uint32_t>(std::popcount(lanes));
  }
  barrier.arrived[warp.number] |= lanes;
  block.awaited |= lane_bits[number];
  if (instruction.mode != barrier_arrive) {
    warp.at_barrier |= lanes;
    if (instruction.mode >= barrier_popc && instruction.slots[2] != no_slot) warp.voting |= lanes;
    put_where(warp.lane_barrier, lanes, number);
    put_where(warp.lane_phase, lanes, barrier.phase);
  }
  try_release(block, barrier);
}

void release_barriers(Block& block) {
  each_lane(block.awaited, [&](int number) {
    try_release(block, block.barriers[static_cast<std::size_t>(number)]);
  });
}

void wake_from_barriers(Warp& warp) {
  const std::vector<Instruction>& code = warp.block->launch.program.code;
  for (Mask left = warp.at_barrier; left != 0;) {
    const std::uint32_t number =
        warp.lane_barrier[static_cast<std::size_t>(std::countr_zero(left))];
    const Barrier& barrier = warp.block->barriers[number];
    const std::uint64_t phase = barrier.phase;
    const Mask there = left & lanes_where([&](int lane) {
                         return warp.lane_barrier[static_cast<std::size_t>(lane)] == number;
                       });
    const Mask awake = there & lanes_where([&](int lane) {
                         return warp.lane_phase[static_cast<std::size_t>(lane)] != phase;
                       });
    left &= ~there;
    warp.at_barrier &= ~awake;
    warp.ready |= awake;
    each_lane(awake & warp.voting, [&](int lane) {
      const std::int32_t next = warp.lane_pc[static_cast<std::size_t>(lane)];
      put_votes(warp, code[static_cast<std::size_t>(next - 1)], lane, barrier);
    });
    warp.voting &= ~awake;
  }
}

// Lanes that gather stand at the instruction that they wait for. All who name the same mask form a group; it is complete
// when its lanes are there, but for those that have ended.
bool run_together(Warp& warp, const Instruction& instruction, Mask lanes) {
  const std::vector<Instruction>& code = warp.block->launch.program.code;
  const std::int32_t pc = warp.pc;
  const Mask outside = warp.running & ~lanes;
  const Mask first_named = warp.lanes.get<Mask>(instruction.slots[0], std::countr_zero(lanes));
  const Mask agreeing = lanes_where(
      [&](int lane) { return warp.lanes.get<Mask>(instruction.slots[0], lane) == first_named; });
  if (lanes == warp.alive && (lanes & ~agreeing) == 0) {  // all are there, in one group
    instruction.run(warp, instruction, lanes);
    return true;
  }
  Mask there = lanes;
  each_lane(warp.gathering, [&](int lane) {
    const std::int32_t other = warp.lane_pc[static_cast<std::size_t>(lane)];
    const bool meets =
        instruction.flow == Flow::meet && code[static_cast<std::size_t>(other)].flow == Flow::meet;
    if (other == pc || meets) there |= Mask{1} << lane;
  });
  put_where(warp.lane_pc, lanes, pc);
  Mask left = there, done = 0;
  while (left != 0) {
    const auto mask_of = [&](int lane) {
      const auto other = static_cast<std::size_t>(warp.lane_pc[static_cast<std::size_t>(lane)]);
      return warp.lanes.get<Mask>(code[other].slots[0], lane);
    };
    const Mask members = mask_of(std::countr_zero(left));
    Mask group = 0;
    each_lane(left,
              [&](int lane) { group |= static_cast<Mask>(mask_of(lane) == members) << lane; });
    left &= ~group;
    if ((members & warp.alive & ~group) != 0) continue;
    instruction.run(warp, instruction, group);
    done |= group;
  }
  warp.gathering = (warp.gathering | lanes) & ~done;
  if (done == lanes && outside == 0) {
    return true;  // all go on, as they are
  }
  // Those that are done go on behind their instruction, and those that wait stay there.
  each_lane(done, [&](int lane) { ++warp.lane_pc[static_cast<std::size_t>(lane)]; });
  warp.ready |= done;
  warp.running = 0;
  each_lane(outside, [&](int lane) { warp.lane_pc[static_cast<std::size_t>(lane)] = pc + 1; });
  warp.ready |= outside;
  return false;
}

}  // namespace simulate_gpus::ptx
