// ld, ldu, st.
#include "ptx/execution/access.hpp"
#include "ptx/instructions/memory_modifiers.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

template <class T>
T value_at(const std::byte* place, std::size_t part) {
  T value;
  std::memcpy(&value, place + part * sizeof value, sizeof value);
  return value;
}

// slots: the address, and the parts of the result.
template <class T>
void load(Warp& warp, const Instruction& instruction, Mask mask) {
  const Lanes lanes = warp.lanes;
  const Slot* const slots = instruction.slots.data();
  const std::size_t count = instruction.count;
  if (instruction.mode == same_for_all && instruction.space != Space::local) {
    const std::byte* const place =
        find(warp, instruction, slots[0], Access::read, std::countr_zero(mask));
    for (std::size_t k = 0; k < count; ++k) {
      const T value = value_at<T>(place, k);
      if (slots[k + 1] == no_slot) continue;
      if (mask == all_lanes)
        for (int lane = 0; lane < lane_count; ++lane) lanes.put<T>(slots[k + 1], lane, value);
      else
        each_lane(mask, [&](int lane) { lanes.put<T>(slots[k + 1], lane, value); });
    }
    return;
  }
  if constexpr (sizeof(T) >= 4) {
    if (mask == all_lanes && count == 1 && slots[1] != no_slot) {
      if (const std::byte* const place =
              find_neighbours(warp, instruction, slots[0], Access::read)) {
        std::memcpy(lanes.file + slots[1], place, lane_count * sizeof(T));
        return;
      }
    }
  }
  if (count == 1 && slots[1] != no_slot) {
    const Slot result = slots[1];
    each_place(warp, instruction, slots[0], Access::read, mask,
               [&](int lane, const std::byte* place) {
                 lanes.put<T>(result, lane, value_at<T>(place, 0));
               });
    return;
  }
  each_place(warp, instruction, slots[0], Access::read, mask,
             [&](int lane, const std::byte* place) {
               T values[8];
               for (std::size_t k = 0; k < count; ++k) values[k] = value_at<T>(place, k);
               for (std::size_t k = 0; k < count; ++k)
                 if (slots[k + 1] != no_slot) lanes.put<T>(slots[k + 1], lane, values[k]);
             });
}

// slots: the address, and the parts of the value.
template <class T>
void store(Warp& warp, const Instruction& instruction, Mask mask) {
  const Lanes lanes = warp.lanes;
  const Slot* const slots = instruction.slots.data();
  if constexpr (sizeof(T) >= 4) {
    if (mask == all_lanes && instruction.count == 1) {
      if (std::byte* const place = find_neighbours(warp, instruction, slots[0], Access::write)) {
        std::memcpy(place, lanes.file + slots[1], lane_count * sizeof(T));
        ++warp.writes;
        return;
      }
    }
  }
  ++warp.writes;
  each_place(warp, instruction, slots[0], Access::write, mask, [&](int lane, std::byte* place) {
    for (std::size_t k = 0; k < instruction.count; ++k) {
      const T value = lanes.get<T>(slots[k + 1], lane);
      std::memcpy(place + k * sizeof value, &value, sizeof value);
    }
  });
}

Handler load_handler(Type type) {
  switch (bits_of(type)) {
    case 8:
      return is_signed(type) ? load<std::int8_t> : load<std::uint8_t>;
    case 16:
      return is_signed(type) ? load<std::int16_t> : load<std::uint16_t>;
    case 32:
      return load<std::uint32_t>;
    case 64:
      return load<std::uint64_t>;
    case 128:
      return load<Wide>;
    default:
      return nullptr;
  }
}

Handler store_handler(Type type) {
  switch (bits_of(type)) {
    case 8:
      return store<std::uint8_t>;
    case 16:
      return store<std::uint16_t>;
    case 32:
      return store<std::uint32_t>;
    case 64:
      return store<std::uint64_t>;
    case 128:
      return store<Wide>;
    default:
      return nullptr;
  }
}

std::size_t take_parts(Lowering& lowering) {
  if (lowering.take("v2")) return 2;
  if (lowering.take("v4")) return 4;
  return lowering.take("v8") ? 8 : 1;
}

// A vector of one part, {%r1}, is how Triton writes a register.
std::vector<Operand> parts_of(Lowering& lowering, const Operand& operand, std::size_t count) {
  if (operand.kind != Operand::Kind::vector && count == 1) return {operand};
  if (operand.kind != Operand::Kind::vector || operand.parts.size() != count)
    lowering.invalid("a vector of another size");
  return operand.parts;
}

Instruction access_of(Lowering& lowering, const Operand& address, Space space, Type type,
                      std::size_t count) {
  Instruction access;
  access.slots = {lowering.address(access, address, space)};
  access.count = static_cast<std::uint8_t>(count);
  access.bytes = static_cast<std::uint8_t>(count * bytes_of(type));
  const bool is_register = !address.parts.empty() && address.parts[0].kind == Operand::Kind::reg;
  access.mode = is_register ? 0 : same_for_all;
  if (access.bytes > 32) lowering.invalid("more than 32 bytes at once");
  return access;
}

// What `emit` does not fill.
void fill(Instruction& instruction, const Instruction& access) {
  instruction.space = access.space;
  instruction.immediate = access.immediate;
  instruction.is_wide_address = access.is_wide_address;
  instruction.count = access.count;
  instruction.bytes = access.bytes;
  instruction.mode = access.mode;
}

void lower_load(Lowering& lowering) {
  const bool has_policy = take_order_and_caching(lowering);
  const Space space = take_space(lowering);
  const std::size_t count = take_parts(lowering);
  const Type type = lowering.take_type();
  lowering.expect_operands(2, has_policy ? 3 : 2);
  const Handler handler = load_handler(type);
  if (handler == nullptr) lowering.invalid("it does not load that type");
  Instruction access = access_of(lowering, lowering.operand(1), space, type, count);
  const std::vector<Operand> parts = parts_of(lowering, lowering.operand(0), count);
  std::vector<std::pair<Operand, Slot>> widened;
  for (const Operand& part : parts) {
    const bool widens = bits_of(type) <= 32 && lowering.register_bits(part) == 64;
    access.slots.push_back(widens ? lowering.temporary(32) : lowering.target(part, type));
    if (widens) widened.emplace_back(part, access.slots.back());
  }
  fill(lowering.emit(handler, access.slots), access);
  for (const auto& [part, slot] : widened) lowering.widen(part, slot, type);
}

void lower_store(Lowering& lowering) {
  const bool has_policy = take_order_and_caching(lowering);
  const Space space = take_space(lowering);
  const std::size_t count = take_parts(lowering);
  const Type type = lowering.take_type();
  lowering.expect_operands(2, has_policy ? 3 : 2);
  const Handler handler = store_handler(type);
  if (handler == nullptr || space == Space::constant) lowering.invalid("it does not store that");
  Instruction access = access_of(lowering, lowering.operand(0), space, type, count);
  for (const Operand& part : parts_of(lowering, lowering.operand(1), count))
    access.slots.push_back(lowering.narrowed_source(part, type));
  fill(lowering.emit(handler, access.slots), access);
}

constexpr Opcode load_store_table[] = {
    {"ld", TypeKind::any, lower_load},
    {"ldu", TypeKind::any, lower_load},
    {"st", TypeKind::any, lower_store},
};

}  // namespace

std::span<const Opcode> load_store_opcodes() { return load_store_table; }

}  // namespace simulate_gpus::ptx
