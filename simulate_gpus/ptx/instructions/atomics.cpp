// atom and red. Lanes go one after the other, from the lowest on.
#include <atomic>
#include <mutex>

#include "ptx/execution/access.hpp"
#include "ptx/instructions/apply.hpp"
#include "ptx/instructions/floats.hpp"
#include "ptx/instructions/memory_modifiers.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                  std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;

// clang-format off
struct AtomAnd { template <class T> T operator()(T old, T b) const { return old & b; } };
struct AtomOr { template <class T> T operator()(T old, T b) const { return old | b; } };
struct AtomXor { template <class T> T operator()(T old, T b) const { return old ^ b; } };
struct AtomExch { template <class T> T operator()(T, T b) const { return b; } };
struct AtomMin { template <class T> T operator()(T old, T b) const { return old < b ? old : b; } };
struct AtomMax { template <class T> T operator()(T old, T b) const { return old > b ? old : b; } };
struct AtomInc { std::uint32_t operator()(std::uint32_t old, std::uint32_t b) const { return old >= b ? 0 : old + 1; } };
struct AtomDec { std::uint32_t operator()(std::uint32_t old, std::uint32_t b) const { return old == 0 || old > b ? b : old - 1; } };
// clang-format on
struct AtomAdd {
  template <class T>
  T operator()(T old, T b) const {
    if constexpr (std::is_integral_v<T>)
      return old + b;
    else
      return rounded_to<T>(calculated(old) + calculated(b));
  }
};
template <class Float>
struct AtomAddPair {
  std::uint32_t operator()(std::uint32_t old, std::uint32_t b) const {
    const Float low =
        AtomAdd()(Float{static_cast<std::uint16_t>(old)}, Float{static_cast<std::uint16_t>(b)});
    const Float high = AtomAdd()(Float{static_cast<std::uint16_t>(old >> 16)},
                                 Float{static_cast<std::uint16_t>(b >> 16)});
    return low.bits | std::uint32_t{high.bits} << 16;
  }
};

// f32 in global memory: denormals are zeros, as the manual says; in shared memory they are not.
struct AtomAddFlushed {
  float operator()(float old, float b) const {
    return flushed<float>(rounded_to<float>(flushed<float>(old) + flushed<float>(b)));
  }
};

template <class F, class T>
T exchange(std::byte* place, T operand) {
  using Bits = BitsOf<T>;
  const std::atomic_ref<Bits> cell(*reinterpret_cast<Bits*>(place));
  Bits old = cell.load();
  while (
      !cell.compare_exchange_weak(old, std::bit_cast<Bits>(F()(std::bit_cast<T>(old), operand)))) {
  }
  return std::bit_cast<T>(old);
}

// slots: the address, the parts of d, the parts of b. A vector's parts are each atomic.
template <class F, class T>
void atomic(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::vector<Slot>& slots = instruction.slots;
  const std::size_t count = instruction.count;
  ++warp.writes;
  each_lane(mask, [&](int lane) {
    std::byte* const place = find(warp, instruction, slots[0], Access::write, lane);
    for (std::size_t k = 0; k < count; ++k) {
      const T old =
          exchange<F, T>(place + k * sizeof(T), warp.lanes.get<T>(slots[1 + count + k], lane));
      if (slots[1 + k] != no_slot) warp.lanes.put<T>(slots[1 + k], lane, old);
    }
  });
}

void add_floats(Warp& warp, const Instruction& instruction, Mask mask) {
  Mask shared = instruction.space == Space::shared ? mask : 0;
  if (instruction.space == Space::generic) {
    each_lane(mask, [&](int lane) {
      const std::uint64_t address = address_of(warp, instruction, instruction.slots[0], lane);
      shared |= static_cast<Mask>(address - shared_window < window_bytes) << lane;
    });
  }
  if (shared != 0) atomic<AtomAdd, float>(warp, instruction, shared);
  if (shared != mask) atomic<AtomAddFlushed, float>(warp, instruction, mask & ~shared);
}

// slots: the address, d, b, c: c replaces what equals b.
template <class T>
void compare_and_swap(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::vector<Slot>& slots = instruction.slots;
  each_lane(mask, [&](int lane) {
    std::byte* const place = find(warp, instruction, slots[0], Access::write, lane);
    T old = warp.lanes.get<T>(slots[2], lane);
    const T next = warp.lanes.get<T>(slots[3], lane);
    if (std::atomic_ref<T>(*reinterpret_cast<T*>(place)).compare_exchange_strong(old, next) &&
        old != next)
      ++warp.writes;
    if (slots[1] != no_slot) warp.lanes.put<T>(slots[1], lane, old);
  });
}

// Of 128 bits, which the host's atomics lack: one lock for all of them. slots: the address, d, b, c or none.
void exchange_wide(Warp& warp, const Instruction& instruction, Mask mask) {
  static std::mutex all;
  const std::vector<Slot>& slots = instruction.slots;
  ++warp.writes;
  each_lane(mask, [&](int lane) {
    std::byte* const place = find(warp, instruction, slots[0], Access::write, lane);
    const std::scoped_lock lock(all);
    Wide old;
    std::memcpy(&old, place, sizeof old);
    const bool is_cas = slots[3] != no_slot;
    if (!is_cas || old == warp.lanes.get<Wide>(slots[2], lane)) {
      const Wide next = warp.lanes.get<Wide>(slots[is_cas ? 3 : 2], lane);
      std::memcpy(place, &next, sizeof next);
    }
    if (slots[1] != no_slot) warp.lanes.put(slots[1], lane, old);
  });
}

template <class T>
Handler integer_atomic(std::string_view operation) {
  using U = std::make_unsigned_t<T>;
  if (operation == "add") return atomic<AtomAdd, U>;
  if (operation == "min") return atomic<AtomMin, T>;
  if (operation == "max") return atomic<AtomMax, T>;
  if (operation == "and") return atomic<AtomAnd, U>;
  if (operation == "or") return atomic<AtomOr, U>;
  if (operation == "xor") return atomic<AtomXor, U>;
  if (operation == "exch") return atomic<AtomExch, U>;
  if (operation == "cas") return compare_and_swap<U>;
  if constexpr (std::is_same_v<T, std::uint32_t>) {
    if (operation == "inc") return atomic<AtomInc, T>;
    if (operation == "dec") return atomic<AtomDec, T>;
  }
  return nullptr;
}

Handler atomic_handler(std::string_view operation, Type type) {
  const bool adds = operation == "add";
  switch (type) {
    case Type::b16:
      return operation == "cas" ? compare_and_swap<std::uint16_t> : nullptr;
    case Type::b32:
    case Type::u32:
      return integer_atomic<std::uint32_t>(operation);
    case Type::s32:
      return integer_atomic<std::int32_t>(operation);
    case Type::b64:
    case Type::u64:
      return integer_atomic<std::uint64_t>(operation);
    case Type::s64:
      return integer_atomic<std::int64_t>(operation);
    case Type::f32:
      return adds ? add_floats : nullptr;
    case Type::f64:
      return adds ? atomic<AtomAdd, double> : nullptr;
    case Type::f16:
      return adds ? atomic<AtomAdd, Half> : nullptr;
    case Type::bf16:
      return adds ? atomic<AtomAdd, BFloat> : nullptr;
    case Type::f16x2:
      return adds ? atomic<AtomAddPair<Half>, std::uint32_t> : nullptr;
    case Type::bf16x2:
      return adds ? atomic<AtomAddPair<BFloat>, std::uint32_t> : nullptr;
    case Type::b128:
      return operation == "cas" || operation == "exch" ? exchange_wide : nullptr;
    default:
      return nullptr;
  }
}

void lower_atomic(Lowering& lowering) {
  const bool has_result = lowering.opcode() == "atom";
  const bool has_policy = take_order_and_caching(lowering);
  const Space space = take_space(lowering);
  const std::string operation(
      lowering.take_one_of({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"}));
  lowering.take("noftz");
  const std::size_t count = lowering.take("v2")   ? 2
                            : lowering.take("v4") ? 4
                            : lowering.take("v8") ? 8
                                                  : 1;
  const Type type = lowering.take_type();
  const Handler handler = atomic_handler(operation, type);
  if (handler == nullptr || space == Space::constant || space == Space::parameter)
    lowering.refuse();
  const std::size_t first = has_result ? 1 : 0, operands = operation == "cas" ? 2 : 1;
  lowering.expect_operands(first + 1 + operands, first + 1 + operands + (has_policy ? 1 : 0));
  Instruction access;
  std::vector<Slot> slots = {lowering.address(access, lowering.operand(first), space)};
  const auto add_parts = [&](const Operand& operand, bool is_target) {
    if (count != 1 && operand.parts.size() != count) lowering.invalid("a vector of another size");
    for (std::size_t k = 0; k < count; ++k) {
      const Operand& part = count == 1 ? operand : operand.parts[k];
      slots.push_back(is_target ? lowering.target(part, type) : lowering.source(part, type));
    }
  };
  if (has_result)
    add_parts(lowering.operand(0), true);
  else
    slots.insert(slots.end(), count, no_slot);
  for (std::size_t k = 0; k < operands; ++k) add_parts(lowering.operand(first + 1 + k), false);
  if (type == Type::b128 && operands == 1) slots.push_back(no_slot);
  Instruction& instruction = lowering.emit(handler, std::move(slots));
  instruction.space = access.space;
  instruction.immediate = access.immediate;
  instruction.is_wide_address = access.is_wide_address;
  instruction.count = static_cast<std::uint8_t>(count);
  instruction.bytes = static_cast<std::uint8_t>(count * bytes_of(type));
}

constexpr Opcode atomic_table[] = {
    {"atom", TypeKind::any, lower_atomic},
    {"red", TypeKind::any, lower_atomic},
};

}  // namespace

std::span<const Opcode> atomic_opcodes() { return atomic_table; }

}  // namespace simulate_gpus::ptx
