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
      return warp.memory.find(target.address, target.bytes, target.access, lane);
  }
}

std::byte* find_neighbours(Warp& warp, const Instruction& instruction, Slot base, Access access) {
  if (instruction.space == Space::local || instruction.space == Space::parameter) return nullptr;
  const std::byte* const addresses = warp.lanes.file + base;
  bool is_dense = true;
  if (instruction.is_wide_address) {
    std::uint64_t each[lane_count];
    std::memcpy(each, addresses, sizeof each);
    for (unsigned lane = 0; lane < lane_count; ++lane)
      is_dense &= each[lane] == each[0] + std::uint64_t{lane} * instruction.bytes;
  } else {
    std::uint32_t each[lane_count];
    std::memcpy(each, addresses, sizeof each);
    for (unsigned lane = 0; lane < lane_count; ++lane)
      is_dense &= each[lane] == each[0] + lane * instruction.bytes;
  }
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
      return warp.memory.find(all.address, all.bytes, access, 0);
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
