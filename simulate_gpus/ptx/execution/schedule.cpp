#include "ptx/execution/schedule.hpp"

#include <algorithm>
#include <limits>

namespace simulate_gpus::ptx {
namespace {

// A loop that lanes do not leave may wait for lanes that stand behind it: after so many instructions these go on, for
// as many as the second number says.
constexpr int patience = 20'000, head_start = 1'000;

Mask guard_of(const Warp& warp, const Instruction& instruction) {
  const Mask guard = warp.lanes.predicate(instruction.guard);
  return instruction.guard_negated ? ~guard : guard;
}

void park(Warp& warp, Mask lanes, std::int32_t pc) {
  put_where(warp.lane_pc, lanes, pc);
  warp.ready |= lanes;
  warp.running &= ~lanes;
}

std::int32_t lowest_pc(const Warp& warp) {
  constexpr std::int32_t none = std::numeric_limits<std::int32_t>::max();
  std::int32_t lowest = none;
  const Mask ready = warp.ready;
  for (std::size_t lane = 0; lane < lane_count; ++lane) {
    const std::int32_t pc = (ready & lane_bits[lane]) != 0 ? warp.lane_pc[lane] : none;
    lowest = pc < lowest ? pc : lowest;
  }
  return lowest;
}

// The lanes at the lowest place run. Whether there are any.
bool choose(Warp& warp) {
  if (warp.at_barrier != 0) wake_from_barriers(warp);
  if (warp.ready == 0) return false;
  const std::int32_t lowest = lowest_pc(warp);
  const Mask group = warp.ready & lanes_where([&](int lane) {
                       return warp.lane_pc[static_cast<std::size_t>(lane)] == lowest;
                     });
  warp.running = group;
  warp.ready &= ~group;
  warp.pc = lowest;
  return true;
}

void branch(Warp& warp, const Instruction& instruction, Mask taken) {
  if (taken == warp.running) {
    warp.pc = instruction.targets[0];
  } else if (taken == 0) {
    ++warp.pc;
  } else {
    park(warp, taken, instruction.targets[0]);
    park(warp, warp.running, warp.pc + 1);
  }
}

void branch_by_index(Warp& warp, const Instruction& instruction, Mask taken) {
  const auto last = static_cast<std::uint32_t>(instruction.targets.size() - 1);
  each_lane(taken, [&](int lane) {
    const std::uint32_t index =
        std::min(warp.lanes.get<std::uint32_t>(instruction.slots[0], lane), last);
    park(warp, Mask{1} << lane, instruction.targets[index]);
  });
  park(warp, warp.running, warp.pc + 1);
}

void end_lanes(Warp& warp, Mask ended) {
  warp.alive &= ~ended;
  warp.running &= ~ended;
  warp.block->alive -= static_cast<std::size_t>(std::popcount(ended));
  ++warp.pc;
  release_barriers(*warp.block);
  warp.ready |= warp.gathering;  // those that wait for the ended lanes look again
  warp.gathering = 0;
}

// Lanes for which the guard holds wait; the others go on.
void wait_at_barrier(Warp& warp, const Instruction& instruction, Mask lanes) {
  arrive_at_barrier(warp, instruction, lanes);
  if ((warp.at_barrier & lanes) != 0) {
    put_where(warp.lane_pc, lanes, warp.pc + 1);
    warp.running &= ~lanes;
    park(warp, warp.running, warp.pc + 1);
  } else {
    ++warp.pc;
  }
}

// So many plain instructions, as far as they go in a row.
void run_plain(Warp& warp, const Instruction* code, std::int32_t count) {
  const Mask running = warp.running;
  const std::int32_t end = warp.pc + count;
  for (std::int32_t pc = warp.pc; pc != end; ++pc) {
    const Instruction& instruction = code[pc];
    warp.pc = pc;  // where a fault is
    Mask lanes = running;
    if (instruction.guard != no_slot) {
      lanes &= guard_of(warp, instruction);
      if (lanes == 0) continue;
    }
    instruction.run(warp, instruction, lanes);
  }
  warp.pc = end;
  warp.steps += static_cast<std::uint64_t>(count);
}

// One instruction of the lanes that run; whether it is another warp's turn.
bool step(Warp& warp, const Instruction& instruction) {
  Mask lanes = warp.running;
  if (instruction.guard != no_slot) lanes &= guard_of(warp, instruction);
  if (lanes == 0 && instruction.flow != Flow::branch) {
    ++warp.pc;
    return false;
  }
  switch (instruction.flow) {
    case Flow::plain:
      break;
    case Flow::branch:
      branch(warp, instruction, lanes);
      return false;
    case Flow::indexed_branch:
      branch_by_index(warp, instruction, lanes);
      return false;
    case Flow::exit:
      end_lanes(warp, lanes);
      return false;
    case Flow::barrier:
      wait_at_barrier(warp, instruction, lanes);
      return false;
    case Flow::together:
    case Flow::meet:
      if (run_together(warp, instruction, lanes)) ++warp.pc;
      return false;
    case Flow::pause:
      instruction.run(warp, instruction, lanes);
      ++warp.pc;
      return true;
  }
  return false;
}

}  // namespace

void run_warp(Warp& warp, std::uint64_t budget) {
  const Instruction* const code = warp.block->launch.program.code.data();
  const std::uint64_t end = warp.steps + budget;
  int apart = 0,
      ahead = 0;  // how long these lanes have run while others could; how long they still may
  std::int32_t next =
      std::numeric_limits<std::int32_t>::max();  // where the lowest of the other lanes is
  Mask known_ready = 0;
  while (warp.steps < end) {
    if (warp.running == 0) {
      if (!choose(warp)) return;
      known_ready = 0;
    }
    std::int32_t count = code[warp.pc].plain_count;
    if (warp.ready != 0) {
      if (warp.ready != known_ready) {
        next = lowest_pc(warp);
        known_ready = warp.ready;
      }
      if (ahead > 0) {
        ahead -= std::max(count, 1);
      } else if (warp.pc >= next) {
        park(warp, warp.running, warp.pc);
        apart = 0;
        continue;
      } else if (apart > patience) {  // the others first, for a while
        const Mask waiting = warp.running;
        const std::int32_t pc = warp.pc;
        warp.running = 0;
        choose(warp);
        park(warp, waiting, pc);
        known_ready = 0;
        ahead = head_start;
        apart = 0;
        continue;
      } else {
        count = std::min(count, next - warp.pc);
        apart += std::max(count, 1);
      }
    }
    if (count > 0) {
      run_plain(warp, code, count);
      continue;
    }
    ++warp.steps;
    if (step(warp, code[warp.pc]) && warp.ready == 0) break;
  }
  if (warp.running != 0) park(warp, warp.running, warp.pc);
}

}  // namespace simulate_gpus::ptx
