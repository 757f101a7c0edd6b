#include "ptx/execution/block.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ptx/execution/schedule.hpp"
#include "ptx/instructions/moves.hpp"

namespace simulate_gpus::ptx {
namespace {

constexpr std::size_t file_alignment = 64;
constexpr std::uint64_t turns_between_looks =
    64;  // turns end at each barrier, and a look takes time

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

void put_special(const Special& special, const Warp& warp, int lane, std::uint64_t value) {
  if (special.is_wide)
    warp.lanes.put(special.slot, lane, value);
  else
    warp.lanes.put(special.slot, lane, static_cast<std::uint32_t>(value));
}

// What is the same for all blocks.
void fill_steady(const Program& program, Warp& warp) {
  fill_constants(program, warp.lanes);
  for (const Special& special : program.specials)
    for (int lane = 0; special.is_steady && lane < lane_count; ++lane)
      put_special(special, warp, lane, special.value(warp, lane));
  for (const Instruction& instruction : program.steady)
    instruction.run(warp, instruction, all_lanes);
}

void fill_specials_of_block(Block& block) {
  for (const Special& special : block.launch.program.specials) {
    if (special.is_steady) continue;
    const std::uint64_t value = special.value(block.warps[0], 0);
    for (const Warp& warp : block.warps)
      for (int lane = 0; lane < lane_count; ++lane) put_special(special, warp, lane, value);
  }
}

void begin_warp(Warp& warp, std::size_t threads) {
  const std::size_t first = static_cast<std::size_t>(warp.first_thread);
  const std::size_t count = std::min<std::size_t>(threads - first, lane_count);
  warp.alive = count == lane_count ? all_lanes : (Mask{1} << count) - 1;
  warp.running = warp.alive;
  warp.ready = warp.at_barrier = warp.gathering = warp.voting = 0;
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

[[noreturn]] void raise_endless_loop(const Block& block) {
  for (const Warp& warp : block.warps) {
    if (warp.ready == 0) continue;
    const int lane = std::countr_zero(warp.ready);
    raise(warp, Kind::timeout,
          "an endless loop: it repeats itself, and nothing else writes what could end it", lane,
          warp.lane_pc[static_cast<std::size_t>(lane)]);
  }
  raise_endless_wait(block);
}

std::uint64_t mixed(std::uint64_t hash, const void* bytes, std::size_t count) {
  const auto* const at = static_cast<const std::byte*>(bytes);
  for (std::size_t k = 0; k + 8 <= count; k += 8) {
    std::uint64_t word;
    std::memcpy(&word, at + k, 8);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 29;
  }
  return hash;
}

// Registers, and where each lane stands: what the block does next follows from them and from memory.
std::uint64_t state_of(const Block& block) {
  std::uint64_t hash = block.alive;
  for (const Warp& warp : block.warps) {
    if (warp.alive == 0) continue;
    const Mask masks[] = {warp.alive, warp.ready, warp.at_barrier, warp.gathering};
    hash = mixed(hash, masks, sizeof masks);
    hash = mixed(hash, warp.lane_pc.data(), sizeof warp.lane_pc);
    hash = mixed(hash, warp.lanes.file, block.launch.program.register_bytes);
  }
  return hash;
}

// A block whose state has come back, while nothing was written, does the same again and again. States are compared with
// one that is renewed after 1, 2, 4 ... turns, so that a period of any length is found.
void watch_for_repetition(Block& block, std::uint64_t steps, std::uint64_t writes) {
  LaunchState& launch = block.launch;
  if (writes != 0) launch.writes += writes;
  block.unwatched_steps += steps;
  if (block.turns % turns_between_looks != 0) return;
  steps = std::exchange(block.unwatched_steps, 0);
  const std::uint64_t all_writes = launch.writes;
  const std::uint64_t state = state_of(block);
  if (all_writes == block.known_writes &&
      (block.repeated_steps != 0 || state == block.known_state)) {
    block.repeated_steps += steps;
    if (block.repeated_steps > launch.request.endless_after) raise_endless_loop(block);
    return;
  }
  if (all_writes != block.known_writes || block.turns >= block.renewal) {
    block.known_state = state;
    block.known_writes = all_writes;
    block.renewal = 2 * block.turns;
  }
  block.repeated_steps = 0;
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
    // NOLINTNEXTLINE(performance-no-int-to-ptr): rounded up above
    warp.lanes.file = reinterpret_cast<std::byte*>(file + number * program.register_bytes);
    fill_steady(program, warp);
  }
}

void begin_block(Block& block, std::uint64_t number) {
  const Dimensions grid = block.launch.request.grid;
  block.index = {static_cast<std::uint32_t>(number % grid.x),
                 static_cast<std::uint32_t>(number / grid.x % grid.y),
                 static_cast<std::uint32_t>(number / grid.x / grid.y)};
  block.alive = block.threads;
  block.turns = block.unwatched_steps = block.known_state = block.known_writes = block.renewal =
      block.repeated_steps = 0;
  std::ranges::fill(block.shared, std::byte{0});
  std::ranges::fill(block.local, std::byte{0});
  block.awaited = 0;
  for (Barrier& barrier : block.barriers) {
    std::ranges::fill(barrier.arrived, 0);
    barrier.votes = barrier.voters = 0;
  }
  for (Warp& warp : block.warps) begin_warp(warp, block.threads);
  fill_specials_of_block(block);
}

bool run_block(Block& block, std::uint64_t budget) {
  ++block.turns;
  std::uint64_t steps = 0, writes = 0;
  for (Warp& warp : block.warps) {
    try {
      const std::uint64_t steps_before = warp.steps, writes_before = warp.writes;
      run_warp(warp, budget);
      steps += warp.steps - steps_before;
      writes += warp.writes - writes_before;
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
  if (steps == 0) {
    block.launch.print(block.output, false);
    raise_endless_wait(block);
  }
  watch_for_repetition(block, steps, writes);
  return false;
}

}  // namespace simulate_gpus::ptx
