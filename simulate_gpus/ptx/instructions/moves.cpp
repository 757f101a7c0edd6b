// mov: of registers, numbers and addresses; from and to vectors of parts.
#include "ptx/instructions/moves.hpp"

#include "ptx/instructions/apply.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

struct Identity {
  template <class T>
  T operator()(T a) const {
    return a;
  }
};

void copy_predicate(Warp& warp, const Instruction& instruction, Mask mask) {
  const Mask read = warp.lanes.predicate(instruction.slots[1]);
  warp.lanes.put_predicate(instruction.slots[0], mask, instruction.negated ? ~read : read);
}
// A number for a predicate: slots d
void set_predicate(Warp& warp, const Instruction& instruction, Mask mask) {
  warp.lanes.put_predicate(instruction.slots[0], mask, instruction.immediate != 0 ? mask : 0);
}

std::uint64_t part(const Lanes& lanes, Slot slot, int lane, std::size_t bytes) {
  if (bytes == 8) return lanes.get<std::uint64_t>(slot, lane);
  const std::uint32_t word = lanes.get<std::uint32_t>(slot, lane);
  return bytes == 4 ? word : word & ((1U << (8 * bytes)) - 1);
}

// slots: d, and the parts from the lowest on, of `bytes` each.
void pack(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::size_t bytes = instruction.bytes, count = instruction.count;
  each_lane(mask, [&](int lane) {
    Wide value;
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t bit = 8 * bytes * k;
      const std::uint64_t bits = part(warp.lanes, instruction.slots[k + 1], lane, bytes);
      (bit < 64 ? value.low : value.high) |= bits << bit % 64;
    }
    if (bytes * count == 16) warp.lanes.put(instruction.slots[0], lane, value);
    if (bytes * count == 8) warp.lanes.put(instruction.slots[0], lane, value.low);
    if (bytes * count < 8)
      warp.lanes.put(instruction.slots[0], lane, static_cast<std::uint32_t>(value.low));
  });
}
void unpack(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::size_t bytes = instruction.bytes, count = instruction.count;
  each_lane(mask, [&](int lane) {
    Wide value;
    if (bytes * count == 16)
      value = warp.lanes.get<Wide>(instruction.slots[0], lane);
    else
      value.low = part(warp.lanes, instruction.slots[0], lane, bytes * count);
    for (std::size_t k = 0; k < count; ++k) {
      const Slot slot = instruction.slots[k + 1];
      const std::size_t bit = 8 * bytes * k;
      const std::uint64_t bits = (bit < 64 ? value.low : value.high) >> bit % 64;
      if (slot == no_slot) continue;
      if (bytes == 8)
        warp.lanes.put(slot, lane, bits);
      else if (bytes == 4)
        warp.lanes.put(slot, lane, static_cast<std::uint32_t>(bits));
      else if (bytes == 2)
        warp.lanes.put(slot, lane, static_cast<std::uint16_t>(bits));
      else
        warp.lanes.put(slot, lane, static_cast<std::uint8_t>(bits));
    }
  });
}

Type part_type(Lowering& lowering, Type type, std::size_t count) {
  switch (bits_of(type) / count) {
    case 8:
      return Type::b8;
    case 16:
      return Type::b16;
    case 32:
      return Type::b32;
    case 64:
      return Type::b64;
    default:
      lowering.invalid("parts of another size");
  }
}

void lower_pack(Lowering& lowering, Type type, bool is_unpack) {
  const std::vector<Operand>& parts = lowering.operand(is_unpack ? 0 : 1).parts;
  if (parts.size() != 2 && parts.size() != 4) lowering.invalid("a vector of another size");
  const Type each = part_type(lowering, type, parts.size());
  std::vector<Slot> slots = {is_unpack ? lowering.source(1, type) : lowering.target(0, type)};
  for (const Operand& operand : parts)
    slots.push_back(is_unpack ? lowering.target(operand, each) : lowering.source(operand, each));
  Instruction& instruction = lowering.emit(is_unpack ? unpack : pack, std::move(slots));
  instruction.bytes = static_cast<std::uint8_t>(bytes_of(each));
  instruction.count = static_cast<std::uint8_t>(parts.size());
}

void lower_mov(Lowering& lowering) {
  const bool is_vector = lowering.take("v2") || lowering.take("v4");
  const Type type = lowering.take_type();
  lowering.expect_operands(2, 2);
  const Operand& to = lowering.operand(0);
  const Operand& from = lowering.operand(1);
  if (is_vector) {
    if (to.parts.size() != from.parts.size() || to.parts.empty())
      lowering.invalid("vectors of different sizes");
    std::vector<Slot> between;  // the target may hold sources
    for (const Operand& operand : from.parts) {
      between.push_back(lowering.temporary(bits_of(type)));
      lowering.emit(copy_handler(type), {between.back(), lowering.source(operand, type)});
    }
    for (std::size_t k = 0; k < to.parts.size(); ++k)
      lowering.emit(copy_handler(type), {lowering.target(to.parts[k], type), between[k]});
    return;
  }
  if (to.kind == Operand::Kind::vector || from.kind == Operand::Kind::vector)
    return lower_pack(lowering, type, to.kind == Operand::Kind::vector);
  const Slot target = lowering.target(to, type);
  if (target == no_slot) lowering.invalid("a result is missing");
  if (type == Type::pred && from.kind == Operand::Kind::number) {
    lowering.emit(set_predicate, {target}).immediate = from.bits != 0;
  } else if (type == Type::pred) {
    lowering.emit(copy_predicate, {target, lowering.predicate(from)}).negated = from.negated;
  } else {
    lowering.emit(copy_handler(type), {target, lowering.source(from, type)});
  }
}

constexpr Opcode move_table[] = {{"mov", TypeKind::any, lower_mov}};

}  // namespace

Handler copy_handler(Type type) {
  if (type == Type::pred) return copy_predicate;
  if (bits_of(type) > 64) return apply<Identity, Wide, Wide>;
  return bits_of(type) > 32 ? apply<Identity, std::uint64_t, std::uint64_t>
                            : apply<Identity, std::uint32_t, std::uint32_t>;
}

void narrow_register(Warp& warp, const Instruction& instruction, Mask mask) {
  apply<Identity, std::uint32_t, std::uint64_t>(warp, instruction, mask);
}
void widen_signed(Warp& warp, const Instruction& instruction, Mask mask) {
  apply<Identity, std::int64_t, std::int32_t>(warp, instruction, mask);
}
void widen_unsigned(Warp& warp, const Instruction& instruction, Mask mask) {
  apply<Identity, std::uint64_t, std::uint32_t>(warp, instruction, mask);
}

std::span<const Opcode> move_opcodes() { return move_table; }

}  // namespace simulate_gpus::ptx
