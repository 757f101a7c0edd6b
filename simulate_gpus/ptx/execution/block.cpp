#include "ptx/execution/block.hpp"

#include <algorithm>
#include <cstring>

#include "ptx/execution/schedule.hpp"
#include "ptx/instructions/moves.hpp"

namespace simulate_gpus::ptx {
namespace {

constexpr std::size_t file_alignment = 64;

std::string place_text(const Dimensions& place) {
  return "(" + std::to_string(place.x) + ", " + std::to_string(place.y) + ", " +
         std::to_string(place.z) + ")";
}

std::string shortened_name(const std::string& name) {
  return name.size() <= 80 ? name : name.substr(0, 80) + "...";
}

// The last part of a path, which is what a line of a text has room for.
std::string file_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

[[noreturn]] void raise(const Warp& warp, Kind kind, const std::string& what, int lane,
                        std::int32_t pc) {
  const Program& program = warp.block->launch.program;
  const Instruction& instruction = program.code[static_cast<std::size_t>(pc)];
  const Dimensions thread = thread_of(warp, lane);
  std::string text = "kernel " + shortened_name(program.kernel) + ", block " +
                     place_text(warp.block->index) + ", thread " + place_text(thread) + ": " +
                     what + " (PTX line " + std::to_string(instruction.line);
  const auto file = warp.block->launch.files.find(instruction.place.file);
  if (instruction.place.line != 0 && file != warp.block->launch.files.end())
    text += ", " + file_name(file->second) + ":" + std::to_string(instruction.place.line);
  throw Fault(kind, text + ")", warp.block->index, thread);
}

void fill_constants(const Program& program, const Lanes& lanes) {
  for (const auto& [slot, bits] : program.constants)
    for (int lane = 0; lane < lane_count; ++lane)
      lanes.put(slot, lane, static_cast<std::uint32_t>(bits));
  for (const auto& [slot, bits] : program.wide_constants)
    for (int lane = 0; lane < lane_count; ++lane) lanes.put(slot, lane, bits);
}

void fill_specials(const Program& program, const Warp& warp) {
  for (const Special& special : program.specials) {
    for (int lane = 0; lane < lane_count; ++lane) {
      const std::uint64_t value = special_value(warp, special.name, lane);
      if (special.is_wide)
        warp.lanes.put(special.slot, lane, value);
      else
        warp.lanes.put(special.slot, lane, static_cast<std::uint32_t>(value));
    }
  }
}

void begin_warp(Warp& warp, std::size_t threads) {
  const std::size_t first = static_cast<std::size_t>(warp.first_thread);
  const std::size_t count = std::min<std::size_t>(threads - first, lane_count);
  warp.alive = count == lane_count ? all_lanes : (Mask{1} << count) - 1;
  warp.running = warp.at_barrier = warp.gathering = 0;
  warp.ready = warp.alive;
  warp.lane_pc.fill(0);
  warp.pc = 0;
}

// Nobody can go on: each lane waits for others that have ended, or that wait themselves.
[[noreturn]] void raise_endless_wait(const Block& block) {
  for (const Warp& warp : block.warps) {
    if (warp.alive == 0) continue;
    const int lane = std::countr_zero(warp.alive);
    const bool is_gathering = (warp.gathering >> lane & 1) != 0;
    const std::int32_t pc = warp.lane_pc[static_cast<std::size_t>(lane)] - (is_gathering ? 0 : 1);
    const std::string instruction =
        block.launch.program.code[static_cast<std::size_t>(pc)].statement->text();
    raise(warp, Kind::timeout,
          "an endless wait: " + instruction + " waits for threads that never come to it", lane, pc);
  }
  throw Error(Kind::timeout, "an endless wait");
}

}  // namespace

void allocate_block(Block& block) {
  const Program& program = block.launch.program;
  const Dimensions size = block.launch.request.block;
  block.threads = std::size_t{size.x} * size.y * size.z;
  const std::size_t warps = (block.threads + lane_count - 1) / lane_count;
  block.shared.resize(block.launch.shared_bytes);
  block.local.resize(program.local_bytes * warps * lane_count);
  block.registers.resize(program.register_bytes * warps + file_alignment);
  auto file = reinterpret_cast<std::uintptr_t>(block.registers.data());
  file = (file + file_alignment - 1) / file_alignment * file_alignment;
  for (std::size_t number = 0; number < warps; ++number) {
    Warp& warp = block.warps.emplace_back(block.launch);
    warp.block = &block;
    warp.number = number;
    warp.first_thread = static_cast<int>(number * lane_count);
    warp.lanes.file = reinterpret_cast<std::byte*>(file + number * program.register_bytes);
    fill_constants(program, warp.lanes);
  }
}

void begin_block(Block& block, std::uint64_t number) {
  const Dimensions grid = block.launch.request.grid;
  block.index = {static_cast<std::uint32_t>(number % grid.x),
                 static_cast<std::uint32_t>(number / grid.x % grid.y),
                 static_cast<std::uint32_t>(number / grid.x / grid.y)};
  block.alive = block.threads;
  block.turns = 0;
  std::ranges::fill(block.shared, std::byte{0});
  std::ranges::fill(block.local, std::byte{0});
  for (Barrier& barrier : block.barriers) {
    std::ranges::fill(barrier.arrived, 0);
    barrier.votes = barrier.voters = 0;
  }
  for (Warp& warp : block.warps) {
    begin_warp(warp, block.threads);
    fill_specials(block.launch.program, warp);
  }
}

bool run_block(Block& block, std::uint64_t budget) {
  ++block.turns;
  bool has_progress = false;
  for (Warp& warp : block.warps) {
    try {
      const std::uint64_t steps = warp.steps;
      has_progress |= run_warp(warp, budget) && warp.steps != steps;
    } catch (const LaneFault& fault) {
      block.launch.print(block.output, false);
      raise(warp, fault.kind, fault.text, fault.lane, warp.pc);
    }
  }
  if (block.alive == 0) {
    block.launch.print(block.output, false);
    block.output.clear();
    return true;
  }
  if (!has_progress) {
    block.launch.print(block.output, false);
    raise_endless_wait(block);
  }
  return false;
}

}  // namespace simulate_gpus::ptx
