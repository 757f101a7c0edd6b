// Where the host has what a lane of a warp addresses. Throws: LaneFault.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ptx/execution/warp.hpp"

namespace simulate_gpus::ptx {

struct Target {
  Space space = Space::generic;
  std::uint64_t address = 0;
  std::size_t bytes = 0;
  Access access = Access::read;
};

// Of shared, local, parameter and generic addresses within a window.
std::byte* find_in_block(Warp& warp, const Target& target, int lane);
[[noreturn]] void refuse_misaligned(const Target& target, int lane);

inline std::byte* find(Warp& warp, const Target& target, int lane) {
  if ((target.address & (target.bytes - 1)) != 0) refuse_misaligned(target, lane);
  if ((target.space == Space::generic && target.address < shared_window) ||
      target.space == Space::global || target.space == Space::constant)
    return warp.memory.find(warp.pc, target.address, target.bytes, target.access, lane);
  return find_in_block(warp, target, lane);
}

inline std::uint64_t address_of(const Warp& warp, const Instruction& instruction, Slot base,
                                int lane) {
  const auto offset = static_cast<std::uint64_t>(instruction.immediate);
  if (instruction.is_wide_address) return warp.lanes.get<std::uint64_t>(base, lane) + offset;
  return static_cast<std::uint32_t>(warp.lanes.get<std::uint32_t>(base, lane) + offset);
}

inline std::byte* find(Warp& warp, const Instruction& instruction, Slot base, Access access,
                       int lane) {
  const std::uint64_t address = address_of(warp, instruction, base, lane);
  return find(warp, Target{instruction.space, address, instruction.bytes, access}, lane);
}

// Some memory that is in one piece on the host.
struct Room {
  std::uint64_t begin = 0, bytes = 0;
  std::byte* host = nullptr;
};
// What all lanes of the warp address, if it is one allocation and no address is misaligned; else nothing.
Room common_room(Warp& warp, const Instruction& instruction, Slot base, Access access, Mask mask);

template <class Address, class F>
void each_in_room(const Lanes lanes, Slot base, Address start, std::byte* host, Mask mask,
                  F&& function) {
  const auto at = [&](int lane) {
    function(lane, host + static_cast<Address>(lanes.get<Address>(base, lane) + start));
  };
  if (mask == all_lanes)
    for (int lane = 0; lane < lane_count; ++lane) at(lane);
  else
    each_lane(mask, at);
}

// Calls the function with each lane, from the lowest on, and with the place that the instruction addresses there.
template <class F>
void each_place(Warp& warp, const Instruction& instruction, Slot base, Access access, Mask mask,
                F&& function) {
  const Room room = common_room(warp, instruction, base, access, mask);
  const std::uint64_t start = static_cast<std::uint64_t>(instruction.immediate) - room.begin;
  if (room.host == nullptr)
    each_lane(mask, [&](int lane) { function(lane, find(warp, instruction, base, access, lane)); });
  else if (instruction.is_wide_address)
    each_in_room(warp.lanes, base, start, room.host, mask, function);
  else
    each_in_room(warp.lanes, base, static_cast<std::uint32_t>(start), room.host, mask, function);
}

// Null, unless all lanes of a warp are next to each other there, from the first on, as they mostly are.
std::byte* find_neighbours(Warp& warp, const Instruction& instruction, Slot base, Access access);

// A text in the memory of the program, until its end.
std::string text_at(Warp& warp, std::uint64_t address, int lane);

}  // namespace simulate_gpus::ptx
