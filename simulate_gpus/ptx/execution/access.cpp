#include "ptx/execution/access.hpp"

#include <cstdio>

namespace simulate_gpus::ptx {
namespace {

[[noreturn]] void refuse_outside(const Target& target, const char* space, std::size_t bytes,
                                 int lane) {
  char text[160];
  std::snprintf(text, sizeof text,
                "%s of %zu bytes at 0x%llx of %s memory, of which there are %zu bytes",
                target.access == Access::read ? "a read" : "a write", target.bytes,
                static_cast<unsigned long long>(target.address), space, bytes);
  throw LaneFault{Kind::illegal_address, text, lane};
}

// Whether each lane is `bytes` behind the one before.
template <class Address>
bool are_neighbours(const Lanes& lanes, Slot base, std::size_t bytes) {
  const Address first = lanes.get<Address>(base, 0);
  Address difference = 0;
  SIMULATE_GPUS_PTX_LANES
  for (int lane = 0; lane < lane_count; ++lane)
    difference |= lanes.get<Address>(base, lane) ^
                  static_cast<Address>(first + static_cast<Address>(lane) * bytes);
  return difference == 0;
}

template <class Address>
bool are_within(const Lanes& lanes, Slot base, std::uint64_t added, const Room& room,
                std::size_t bytes) {
  const auto start = static_cast<Address>(added), begin = static_cast<Address>(room.begin);
  const auto last = static_cast<Address>(room.bytes - bytes),
             low_bits = static_cast<Address>(bytes - 1);
  Address wrong = 0;
  SIMULATE_GPUS_PTX_LANES
  for (int lane = 0; lane < lane_count; ++lane) {
    const auto address = static_cast<Address>(lanes.get<Address>(base, lane) + start);
    wrong |=
        static_cast<Address>(static_cast<Address>(address - begin) > last) | (address & low_bits);
  }
  return wrong == 0;
}

Room room_of(Warp& warp, const Instruction& instruction, Slot base, Access access, int lane) {
  std::vector<std::byte>& shared = warp.block->shared;
  if (instruction.space == Space::shared) return {0, shared.size(), shared.data()};
  const bool may_be_global =
      instruction.space == Space::global || instruction.space == Space::generic;
  if (!instruction.is_wide_address || !may_be_global) return {};
  const std::uint64_t address = address_of(warp, instruction, base, lane);
  if (address - shared_window < window_bytes && instruction.space == Space::generic)
    return {shared_window, shared.size(), shared.data()};
  const GlobalMemory::Known& known = warp.memory.last_used(warp.pc);
  if (!known.allows(address, instruction.bytes, access)) return {};
  return {known.begin, known.bytes, known.host};
}

}  // namespace

void refuse_misaligned(const Target& target, int lane) {
  char text[120];
  std::snprintf(text, sizeof text, "%s of %zu bytes at 0x%llx, which is no multiple of them",
                target.access == Access::read ? "a read" : "a write", target.bytes,
                static_cast<unsigned long long>(target.address));
  throw LaneFault{Kind::misaligned_address, text, lane};
}

std::byte* find_in_block(Warp& warp, const Target& target, int lane) {
  Target inner = target;
  if (target.space == Space::generic) {
    const std::uint64_t window = target.address & ~(window_bytes - 1);
    inner.space = window == shared_window      ? Space::shared
                  : window == local_window     ? Space::local
                  : window == parameter_window ? Space::parameter
                                               : Space::global;
    inner.address = target.address - window;
  }
  Block& block = *warp.block;
  const auto is_within = [&](std::size_t size) {
    return inner.address < size && inner.bytes <= size - inner.address;
  };
  switch (inner.space) {
    case Space::shared:
      if (!is_within(block.shared.size()))
        refuse_outside(inner, "shared", block.shared.size(), lane);
      return block.shared.data() + inner.address;
    case Space::local: {
      const std::size_t size = block.launch.program.local_bytes;
      if (!is_within(size)) refuse_outside(inner, "local", size, lane);
      return block.local.data() + size * static_cast<std::size_t>(warp.first_thread + lane) +
             inner.address;
    }
    case Space::parameter: {
      const std::vector<std::byte>& parameters = block.launch.request.parameters;
      if (!is_within(parameters.size()))
        refuse_outside(inner, "parameter", parameters.size(), lane);
      if (inner.access == Access::write)
        throw LaneFault{Kind::launch_failure, "a write to a parameter", lane};
      return const_cast<std::byte*>(parameters.data()) + inner.address;
    }
    default:
      return warp.memory.find(warp.pc, target.address, target.bytes, target.access, lane);
  }
}

Room common_room(Warp& warp, const Instruction& instruction, Slot base, Access access, Mask mask) {
  const Room room = room_of(warp, instruction, base, access, std::countr_zero(mask));
  if (room.bytes < instruction.bytes) return {};
  const auto added = static_cast<std::uint64_t>(instruction.immediate);
  const bool fits =
      instruction.is_wide_address
          ? are_within<std::uint64_t>(warp.lanes, base, added, room, instruction.bytes)
          : are_within<std::uint32_t>(warp.lanes, base, added, room, instruction.bytes);
  return fits ? room : Room{};
}

std::byte* find_neighbours(Warp& warp, const Instruction& instruction, Slot base, Access access) {
  if (instruction.space == Space::local || instruction.space == Space::parameter) return nullptr;
  const bool is_dense = instruction.is_wide_address
                            ? are_neighbours<std::uint64_t>(warp.lanes, base, instruction.bytes)
                            : are_neighbours<std::uint32_t>(warp.lanes, base, instruction.bytes);
  if (!is_dense) return nullptr;
  const std::uint64_t first = address_of(warp, instruction, base, 0);
  if ((first & (instruction.bytes - 1U)) != 0)
    return nullptr;  // the lane that is first in error will say so
  const Target all{instruction.space, first, std::size_t{lane_count} * instruction.bytes, access};
  const bool is_shared = instruction.space == Space::shared ||
                         (instruction.space == Space::generic && first >= shared_window);
  const bool is_global = !is_shared && first < shared_window;
  if (!is_shared && !is_global)
    return nullptr;  // the address of shared memory as one of global memory
  if (is_global) {
    try {
      return warp.memory.find(warp.pc, all.address, all.bytes, access, 0);
    } catch (const LaneFault&) {
      return nullptr;
    }
  }
  const std::uint64_t offset = instruction.space == Space::shared ? first : first - shared_window;
  const std::vector<std::byte>& shared = warp.block->shared;
  if (offset >= shared.size() || all.bytes > shared.size() - offset) return nullptr;
  return warp.block->shared.data() + offset;
}

std::string text_at(Warp& warp, std::uint64_t address, int lane) {
  std::string text;
  while (text.size() < 1 << 16) {
    const char c =
        static_cast<char>(*find(warp, Target{Space::generic, address++, 1, Access::read}, lane));
    if (c == '\0') break;
    text += c;
  }
  return text;
}

}  // namespace simulate_gpus::ptx
