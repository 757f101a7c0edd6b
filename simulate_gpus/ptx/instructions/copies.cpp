// cp.async: copies from global to shared memory, done at once. And hints to caches, which do nothing.
#include <algorithm>

#include "ptx/execution/access.hpp"
#include "ptx/instructions/copies.hpp"
#include "ptx/instructions/mbarrier.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

// slots: to, from, source bytes or none, a predicate to ignore the source or none; the rest is zeros. The immediates are
// those of the two addresses.
void copy_to_shared(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::vector<Slot>& slots = instruction.slots;
  const std::size_t bytes = instruction.bytes;
  ++warp.writes;
  each_lane(mask, [&](int lane) {
    std::byte* const to = find(warp, instruction, slots[0], Access::write, lane);
    std::size_t given = bytes;
    if (slots[2] != no_slot)
      given = std::min<std::size_t>(warp.lanes.get<std::uint32_t>(slots[2], lane), bytes);
    const bool ignores = slots[3] != no_slot &&
                         ((warp.lanes.predicate(slots[3]) >> lane & 1) != 0) != instruction.negated;
    if (ignores) given = 0;
    const auto offset = static_cast<std::uint64_t>(instruction.second_immediate);
    const std::uint64_t address =
        instruction.mode != 0
            ? warp.lanes.get<std::uint64_t>(slots[1], lane) + offset
            : static_cast<std::uint32_t>(warp.lanes.get<std::uint32_t>(slots[1], lane) + offset);
    if (given != 0) {  // aligned for all bytes, of which only these are read
      if ((address & (bytes - 1)) != 0)
        refuse_misaligned({Space::global, address, bytes, Access::read}, lane);
      std::memcpy(to, warp.memory.find(warp.pc, address, given, Access::read, lane), given);
    }
    std::memset(to + given, 0, bytes - given);
  });
}

void lower_copy(Lowering& lowering) {
  if (lowering.take("async") && lowering.take("mbarrier"))
    return lower_mbarrier_arrival_of_copies(lowering);
  if (lowering.take("commit_group") || lowering.take("wait_all") || lowering.take("wait_group")) {
    lowering.emit(do_nothing, {});
    return;
  }
  const bool is_whole_line = lowering.take("cg");
  if (!is_whole_line && !lowering.take("ca")) lowering.refuse("copies of tensors and in bulk");
  if (!lowering.take("shared") && !lowering.take("shared::cta")) lowering.refuse();
  if (!lowering.take("global")) lowering.refuse();
  lowering.ignore({"L2::64B", "L2::128B", "L2::256B"});
  const bool has_policy = lowering.take("L2::cache_hint");
  const Operand& size = lowering.operand(2);
  if (size.kind != Operand::Kind::number || (size.bits != 4 && size.bits != 8 && size.bits != 16) ||
      (is_whole_line && size.bits != 16))
    lowering.invalid("its size");
  Instruction to, from;
  std::vector<Slot> slots = {lowering.address(to, lowering.operand(0), Space::shared),
                             lowering.address(from, lowering.operand(1), Space::global), no_slot,
                             no_slot};
  bool is_negated = false;
  const std::size_t count =
      lowering.operand_count() - (has_policy && lowering.operand_count() > 3 ? 1 : 0);
  if (count > 3) {
    const Operand& limit = lowering.operand(3);
    if (lowering.register_bits(limit) == 1) {
      slots[3] = lowering.predicate(limit);
      is_negated = limit.negated;
    } else {
      slots[2] = lowering.source(limit, Type::u32);
    }
  }
  Instruction& instruction = lowering.emit(copy_to_shared, std::move(slots));
  instruction.space = to.space;
  instruction.immediate = to.immediate;
  instruction.is_wide_address = to.is_wide_address;
  instruction.second_immediate = from.immediate;
  instruction.mode = from.is_wide_address ? 1 : 0;
  instruction.negated = is_negated;
  instruction.bytes = static_cast<std::uint8_t>(size.bits);
}

// prefetch, discard and such. What they may not name, a card does not check either.
void lower_hint(Lowering& lowering) {
  while (!lowering.take_any().empty()) {
  }
  lowering.emit(do_nothing, {});
}

// createpolicy: a number that accesses take and that changes no result.
void lower_policy(Lowering& lowering) {
  while (!lowering.take_any().empty()) {
  }
  lowering.emit(
      [](Warp& warp, const Instruction& instruction, Mask mask) {
        each_lane(mask,
                  [&](int lane) { warp.lanes.put<std::uint64_t>(instruction.slots[0], lane, 0); });
      },
      {lowering.target(0, Type::b64)});
}

constexpr Opcode copy_table[] = {
    {"cp", TypeKind::any, lower_copy},
    {"prefetch", TypeKind::any, lower_hint},
    {"prefetchu", TypeKind::any, lower_hint},
    {"discard", TypeKind::any, lower_hint},
    {"applypriority", TypeKind::any, lower_hint},
    {"pmevent", TypeKind::any, lower_hint},
    {"createpolicy", TypeKind::any, lower_policy},
};

}  // namespace

void do_nothing(Warp&, const Instruction&, Mask) {}

std::span<const Opcode> copy_opcodes() { return copy_table; }

}  // namespace simulate_gpus::ptx
