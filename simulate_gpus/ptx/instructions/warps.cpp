// What the lanes of a warp find out together: vote, match, redux, elect, activemask. slots[0] is the mask of those that
// take part; the scheduler runs them when all are there.
#include <algorithm>

#include "ptx/instructions/apply.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

enum VoteMode : std::uint8_t { vote_all, vote_any, vote_uni, vote_ballot };

// slots: mask, d, a
void vote(Warp& warp, const Instruction& instruction, Mask mask) {
  const Mask read = warp.lanes.predicate(instruction.slots[2]);
  const Mask votes = (instruction.negated ? ~read : read) & mask;
  if (instruction.mode == vote_ballot) {
    each_lane(mask, [&](int lane) { warp.lanes.put(instruction.slots[1], lane, votes); });
    return;
  }
  const bool result = instruction.mode == vote_all   ? votes == mask
                      : instruction.mode == vote_any ? votes != 0
                                                     : votes == 0 || votes == mask;
  warp.lanes.put_predicate(instruction.slots[1], mask, result ? mask : 0);
}

// slots: mask, d, p or none, a. mode: .all
template <class T>
void match(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::vector<Slot>& slots = instruction.slots;
  Mask equal[lane_count] = {};
  each_lane(mask, [&](int lane) {
    const T value = warp.lanes.get<T>(slots[3], lane);
    each_lane(mask, [&](int other) {
      equal[lane] |= static_cast<Mask>(warp.lanes.get<T>(slots[3], other) == value) << other;
    });
  });
  const bool are_all_equal = equal[std::countr_zero(mask)] == mask;
  each_lane(mask, [&](int lane) {
    const Mask result = instruction.mode == 0 ? equal[lane] : are_all_equal ? mask : 0;
    if (slots[1] != no_slot) warp.lanes.put(slots[1], lane, result);
  });
  if (slots[2] != no_slot) warp.lanes.put_predicate(slots[2], mask, are_all_equal ? mask : 0);
}

// clang-format off
struct ReduxAdd { template <class T> T operator()(T a, T b) const { return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b)); } };
struct ReduxMin { template <class T> T operator()(T a, T b) const { return std::min(a, b); } };
struct ReduxMax { template <class T> T operator()(T a, T b) const { return std::max(a, b); } };
struct ReduxAnd { template <class T> T operator()(T a, T b) const { return a & b; } };
struct ReduxOr { template <class T> T operator()(T a, T b) const { return a | b; } };
struct ReduxXor { template <class T> T operator()(T a, T b) const { return a ^ b; } };
// clang-format on

// slots: mask, d, a
template <class F, class T>
void redux(Warp& warp, const Instruction& instruction, Mask mask) {
  T total = warp.lanes.get<T>(instruction.slots[2], std::countr_zero(mask));
  each_lane(mask & (mask - 1),
            [&](int lane) { total = F()(total, warp.lanes.get<T>(instruction.slots[2], lane)); });
  each_lane(mask, [&](int lane) { warp.lanes.put(instruction.slots[1], lane, total); });
}

template <class T>
Handler redux_handler(std::string_view operation) {
  if (operation == "add") return redux<ReduxAdd, T>;
  if (operation == "min") return redux<ReduxMin, T>;
  if (operation == "max") return redux<ReduxMax, T>;
  if (operation == "and") return redux<ReduxAnd, T>;
  return operation == "or" ? redux<ReduxOr, T> : redux<ReduxXor, T>;
}

// The lowest lane is chosen. slots: mask, d or none, p
void elect(Warp& warp, const Instruction& instruction, Mask mask) {
  const int leader = std::countr_zero(mask);
  if (instruction.slots[1] != no_slot)
    each_lane(mask, [&](int lane) {
      warp.lanes.put(instruction.slots[1], lane, static_cast<std::uint32_t>(leader));
    });
  warp.lanes.put_predicate(instruction.slots[2], mask, Mask{1} << leader);
}

void activemask(Warp& warp, const Instruction& instruction, Mask mask) {
  each_lane(mask, [&](int lane) { warp.lanes.put(instruction.slots[0], lane, mask); });
}

void require_sync(Lowering& lowering) {
  if (!lowering.take("sync")) lowering.refuse("without .sync, as on GPUs since sm_70");
}

void lower_vote(Lowering& lowering) {
  require_sync(lowering);
  const std::string_view mode = lowering.take_one_of({"all", "any", "uni", "ballot"});
  if (mode.empty()) lowering.invalid("its mode is missing");
  const Type type = lowering.take_type();
  if ((type == Type::pred) == (mode == "ballot")) lowering.invalid("a result of another type");
  Instruction& instruction =
      lowering.emit(vote, {lowering.source(2, Type::b32), lowering.target(0, type),
                           lowering.predicate(lowering.operand(1))});
  instruction.flow = Flow::together;
  instruction.negated = lowering.operand(1).negated;
  instruction.mode = mode == "all"   ? vote_all
                     : mode == "any" ? vote_any
                     : mode == "uni" ? vote_uni
                                     : vote_ballot;
}

void lower_match(Lowering& lowering) {
  const bool is_all = lowering.take("all");
  if (!is_all && !lowering.take("any")) lowering.invalid("it needs .any or .all");
  require_sync(lowering);
  const Type type = lowering.take_type();
  Instruction& instruction =
      lowering.emit(bits_of(type) == 64 ? match<std::uint64_t> : match<std::uint32_t>,
                    {lowering.source(2, Type::b32), lowering.target(0, Type::b32),
                     lowering.second_target(0, Type::pred), lowering.source(1, type)});
  instruction.flow = Flow::together;
  instruction.mode = is_all ? 1 : 0;
}

void lower_redux(Lowering& lowering) {
  require_sync(lowering);
  const std::string_view operation =
      lowering.take_one_of({"add", "min", "max", "and", "or", "xor"});
  const Type type = lowering.take_type();
  if (operation.empty() || (type != Type::u32 && type != Type::s32 && type != Type::b32))
    lowering.refuse();
  lowering
      .emit(type == Type::s32 ? redux_handler<std::int32_t>(operation)
                              : redux_handler<std::uint32_t>(operation),
            {lowering.source(2, Type::b32), lowering.target(0, type), lowering.source(1, type)})
      .flow = Flow::together;
}

void lower_elect(Lowering& lowering) {
  require_sync(lowering);
  const Operand& result = lowering.operand(0);
  const Slot leader = result.kind == Operand::Kind::sink ? no_slot : lowering.target(0, Type::b32);
  const Slot chosen = lowering.second_target(0, Type::pred);
  if (chosen == no_slot) lowering.invalid("a second result is missing");
  lowering.emit(elect, {lowering.source(1, Type::b32), leader, chosen}).flow = Flow::together;
}

void lower_activemask(Lowering& lowering) {
  lowering.take("b32");
  lowering.emit(activemask, {lowering.target(0, Type::b32)});
}

constexpr Opcode warp_table[] = {
    {"vote", TypeKind::any, lower_vote},
    {"match", TypeKind::any, lower_match},
    {"redux", TypeKind::any, lower_redux},
    {"elect", TypeKind::any, lower_elect},
    {"activemask", TypeKind::any, lower_activemask},
};

}  // namespace

std::span<const Opcode> warp_opcodes() { return warp_table; }

}  // namespace simulate_gpus::ptx
