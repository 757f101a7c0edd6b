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
    return warp.memory.find(target.address, target.bytes, target.access, lane);
  return find_in_block(warp, target, lane);
}

inline std::uint64_t address_of(const Warp& warp, const Instruction& instruction, Slot base,
                                int lane) {
  const auto offset = static_cast<std::uint64_t>(instruction.immediate);
  if (instruction.is_wide_address) return warp.lanes.get<std::uint64_t>(base, lane) + offset;
  return static_cast<std::uint32_t>(warp.lanes.get<std::uint32_t>(base, lane) + offset);
}

// The places that an instruction's lanes address. What its accesses have in common is looked at once.
class Places {
 public:
  Places(Warp& warp, const Instruction& instruction, Slot base, Access access)
      : warp_(warp), instruction_(instruction), base_(base), access_(access) {
    std::vector<std::byte>& shared = warp.block->shared;
    if (instruction.space != Space::shared || shared.size() < instruction.bytes) return;
    shared_ = shared.data();
    last_ = shared.size() - instruction.bytes;
  }

  [[gnu::always_inline]] std::byte* operator[](int lane) {
    const std::uint64_t address = address_of(warp_, instruction_, base_, lane);
    if (address <= last_ && shared_ != nullptr && (address & (instruction_.bytes - 1U)) == 0)
      return shared_ + address;
    return find(warp_, Target{instruction_.space, address, instruction_.bytes, access_}, lane);
  }

 private:
  Warp& warp_;
  const Instruction& instruction_;
  Slot base_;
  Access access_;
  std::byte* shared_ = nullptr;
  std::uint64_t last_ = 0;
};

inline std::byte* find(Warp& warp, const Instruction& instruction, Slot base, Access access,
                       int lane) {
  const std::uint64_t address = address_of(warp, instruction, base, lane);
  return find(warp, Target{instruction.space, address, instruction.bytes, access}, lane);
}

// Null, unless all lanes of a warp are next to each other there, from the first on, as they mostly are.
std::byte* find_neighbours(Warp& warp, const Instruction& instruction, Slot base, Access access);

// A text in the memory of the program, until its end.
std::string text_at(Warp& warp, std::uint64_t address, int lane);

}  // namespace simulate_gpus::ptx
