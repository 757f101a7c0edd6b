// cvta and isspacep: addresses between their memories and the generic one.
#include "ptx/execution/access.hpp"
#include "ptx/instructions/apply.hpp"
#include "ptx/instructions/memory_modifiers.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

// slots: d, a. The immediate is where the memory's window begins, or its negative.
template <class T>
void convert_address(Warp& warp, const Instruction& instruction, Mask mask) {
  const Lanes lanes = warp.lanes;
  const Slot from = instruction.slots[1];
  const auto window = static_cast<std::uint64_t>(instruction.immediate);
  for_lanes<T>(lanes, instruction.slots[0], mask,
               [&](int lane) { return static_cast<T>(lanes.get<T>(from, lane) + window); });
}

std::uint64_t window_of(Lowering& lowering, Space space) {
  switch (space) {
    case Space::shared:
      return shared_window;
    case Space::local:
      return local_window;
    case Space::parameter:
      return lowering.in_device_function() ? local_window : parameter_window;
    case Space::global:
    case Space::constant:
      return 0;
    case Space::generic:
      break;
  }
  lowering.invalid("a memory is missing");
}

void lower_cvta(Lowering& lowering) {
  const bool is_to = lowering.take("to");
  const std::uint64_t window = window_of(lowering, take_space(lowering));
  const Type type = lowering.take_type();
  const Handler handler =
      bits_of(type) == 64 ? convert_address<std::uint64_t> : convert_address<std::uint32_t>;
  if (bits_of(type) < 32 || !is_integer(type)) lowering.invalid("it needs u64");
  lowering.expect_operands(2, 2);
  lowering.emit(handler, {lowering.target(0, type), lowering.source(1, type)}).immediate =
      static_cast<std::int64_t>(is_to ? 0 - window : window);
}

bool is_in_space(const Warp& warp, Space space, std::uint64_t address) {
  const std::uint64_t window = address & ~(window_bytes - 1);
  switch (space) {
    case Space::shared:
      return window == shared_window;
    case Space::local:
      return window == local_window;
    case Space::parameter:
      return window == parameter_window;
    case Space::constant:
      return warp.memory.is_constant(address);
    default:
      return address < shared_window && !warp.memory.is_constant(address);
  }
}

// slots: p, a
void isspacep(Warp& warp, const Instruction& instruction, Mask mask) {
  Mask truth = 0;
  each_lane(mask, [&](int lane) {
    const auto address = warp.lanes.get<std::uint64_t>(instruction.slots[1], lane);
    truth |= static_cast<Mask>(is_in_space(warp, instruction.space, address)) << lane;
  });
  warp.lanes.put_predicate(instruction.slots[0], mask, truth);
}

void lower_isspacep(Lowering& lowering) {
  const Space space = take_space(lowering);
  lowering.emit(isspacep, {lowering.target(0, Type::pred), lowering.source(1, Type::u64)}).space =
      space;
}

constexpr Opcode address_table[] = {
    {"cvta", TypeKind::any, lower_cvta},
    {"isspacep", TypeKind::any, lower_isspacep},
};

}  // namespace

std::span<const Opcode> address_opcodes() { return address_table; }

}  // namespace simulate_gpus::ptx
