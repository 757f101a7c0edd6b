// mbarrier: a word of 64 bits in shared memory, which the manual leaves to the machine. Here: 20 bits of arrivals that are
// pending, 20 of those that each phase expects, the phase, and above the bytes of copies that are still to come.
#include "ptx/instructions/mbarrier.hpp"

#include <atomic>

#include "ptx/execution/access.hpp"
#include "ptx/instructions/memory_modifiers.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

constexpr std::uint64_t count_mask = (1 << 20) - 1;
constexpr int phase_bit = 40, bytes_bit = 41;

enum MbarrierMode : std::uint8_t {
  mbarrier_arrive,
  mbarrier_drop,
  mbarrier_expect,
  mbarrier_complete
};

struct MbarrierWord {
  std::uint64_t pending = 0, expected = 0, phase = 0, bytes = 0;

  static MbarrierWord read(std::uint64_t word) {
    return {word & count_mask, word >> 20 & count_mask, word >> phase_bit & 1, word >> bytes_bit};
  }
  std::uint64_t word() const {
    return (pending & count_mask) | (expected & count_mask) << 20 | phase << phase_bit |
           bytes << bytes_bit;
  }
  void complete_phase() {
    if (pending != 0 || (bytes << bytes_bit) != 0) return;
    pending = expected;
    phase ^= 1;
  }
};

template <class F>
std::uint64_t change_word(std::byte* place, F&& change) {
  const std::atomic_ref<std::uint64_t> cell(*reinterpret_cast<std::uint64_t*>(place));
  std::uint64_t old = cell.load();
  while (true) {
    MbarrierWord next = MbarrierWord::read(old);
    change(next);
    if (cell.compare_exchange_weak(old, next.word())) return old;
  }
}

// slots: the address, the count
void init(Warp& warp, const Instruction& instruction, Mask mask) {
  ++warp.writes;
  each_lane(mask, [&](int lane) {
    const std::uint64_t count =
        warp.lanes.get<std::uint32_t>(instruction.slots[1], lane) & count_mask;
    const std::uint64_t word = MbarrierWord{count, count, 0, 0}.word();
    std::memcpy(find(warp, instruction, instruction.slots[0], Access::write, lane), &word,
                sizeof word);
  });
}

// slots: the address, the state or none, the count of arrivals, the bytes to expect or to complete.
void arrive(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::vector<Slot>& slots = instruction.slots;
  ++warp.writes;
  each_lane(mask, [&](int lane) {
    const std::uint64_t count = warp.lanes.get<std::uint32_t>(slots[2], lane);
    const std::uint64_t bytes = warp.lanes.get<std::uint32_t>(slots[3], lane);
    std::byte* const place = find(warp, instruction, slots[0], Access::write, lane);
    const std::uint64_t old = change_word(place, [&](MbarrierWord& word) {
      if (instruction.mode == mbarrier_drop) word.expected -= count;
      if (instruction.mode == mbarrier_complete)
        word.bytes -= bytes;
      else
        word.bytes += bytes;
      if (instruction.mode <= mbarrier_drop) word.pending = (word.pending - count) & count_mask;
      if (instruction.mode != mbarrier_expect) word.complete_phase();
    });
    if (slots[1] != no_slot) warp.lanes.put(slots[1], lane, old);
  });
}

// Whether the phase of the state, or the one of that parity, is complete. slots: the address, p, state or parity
void test_wait(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::vector<Slot>& slots = instruction.slots;
  const bool by_parity = instruction.mode != 0;
  Mask truth = 0;
  each_lane(mask, [&](int lane) {
    const std::byte* const place = find(warp, instruction, slots[0], Access::read, lane);
    std::uint64_t word;
    std::memcpy(&word, place, sizeof word);
    const std::uint64_t phase =
        by_parity ? warp.lanes.get<std::uint32_t>(slots[2], lane) & 1
                  : MbarrierWord::read(warp.lanes.get<std::uint64_t>(slots[2], lane)).phase;
    truth |= static_cast<Mask>(MbarrierWord::read(word).phase != phase) << lane;
  });
  warp.lanes.put_predicate(slots[1], mask, truth);
}

// slots: d, state
void pending_count(Warp& warp, const Instruction& instruction, Mask mask) {
  each_lane(mask, [&](int lane) {
    const auto word = MbarrierWord::read(warp.lanes.get<std::uint64_t>(instruction.slots[1], lane));
    warp.lanes.put(instruction.slots[0], lane, static_cast<std::uint32_t>(word.pending));
  });
}

Instruction& emit_at(Lowering& lowering, Handler handler, const Operand& where,
                     std::vector<Slot> others, Space space) {
  Instruction access;
  const Slot base = lowering.address(access, where, space);
  others.insert(others.begin(), base);
  Instruction& instruction = lowering.emit(handler, std::move(others));
  instruction.space = access.space;
  instruction.immediate = access.immediate;
  instruction.is_wide_address = access.is_wide_address;
  instruction.bytes = 8;
  return instruction;
}

void lower_arrival(Lowering& lowering, Space space, std::uint8_t mode, bool expects) {
  lowering.take("noComplete");
  const bool has_state =
      mode <= mbarrier_drop && lowering.operand(0).kind != Operand::Kind::address;
  const std::size_t first = has_state ? 1 : 0;
  const Slot zero = lowering.constant(0, false);
  Slot count = lowering.constant(1, false), bytes = zero;
  if (lowering.operand_count() > first + 1)
    (expects || mode > mbarrier_drop ? bytes : count) = lowering.source(first + 1, Type::u32);
  const Slot state = has_state ? lowering.target(0, Type::b64) : no_slot;
  emit_at(lowering, arrive, lowering.operand(first), {state, count, bytes}, space).mode = mode;
}

void lower_mbarrier(Lowering& lowering) {
  const std::string_view what =
      lowering.take_one_of({"init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait",
                            "pending_count", "expect_tx", "complete_tx"});
  const bool expects = (what == "arrive" || what == "arrive_drop") && lowering.take("expect_tx");
  take_order_and_caching(lowering);
  const Space space = what == "pending_count" ? Space::generic : take_space(lowering);
  const bool by_parity = lowering.take("parity");
  lowering.take("b64");
  if (what == "init") {
    emit_at(lowering, init, lowering.operand(0), {lowering.source(1, Type::u32)}, space);
  } else if (what == "inval") {
    emit_at(lowering, init, lowering.operand(0), {lowering.constant(0, false)}, space);
  } else if (what == "arrive" || what == "arrive_drop") {
    lower_arrival(lowering, space, what == "arrive" ? mbarrier_arrive : mbarrier_drop, expects);
  } else if (what == "expect_tx" || what == "complete_tx") {
    lower_arrival(lowering, space, what == "expect_tx" ? mbarrier_expect : mbarrier_complete,
                  false);
  } else if (what == "test_wait" || what == "try_wait") {
    const Slot phase = by_parity ? lowering.source(2, Type::u32) : lowering.source(2, Type::b64);
    Instruction& instruction = emit_at(lowering, test_wait, lowering.operand(1),
                                       {lowering.target(0, Type::pred), phase}, space);
    instruction.mode = by_parity ? 1 : 0;
    instruction.flow = Flow::pause;
  } else if (what == "pending_count") {
    lowering.emit(pending_count, {lowering.target(0, Type::u32), lowering.source(1, Type::b64)});
  } else {
    lowering.refuse();
  }
}

constexpr Opcode mbarrier_table[] = {{"mbarrier", TypeKind::any, lower_mbarrier}};

}  // namespace

void lower_mbarrier_arrival_of_copies(Lowering& lowering) {
  if (!lowering.take("arrive")) lowering.refuse();
  const bool counts =
      lowering.take("noinc");  // without it an arrival is added first, so that nothing changes
  const Space space = take_space(lowering);
  lowering.take("b64");
  const Slot zero = lowering.constant(0, false);
  emit_at(lowering, arrive, lowering.operand(0),
          {no_slot, lowering.constant(counts ? 1 : 0, false), zero}, space)
      .mode = counts ? mbarrier_arrive : mbarrier_expect;
}

std::span<const Opcode> mbarrier_opcodes() { return mbarrier_table; }

}  // namespace simulate_gpus::ptx
