// Sums over several registers: add.cc, addc, sub.cc, subc, mad.cc, madc. The carry is a predicate that each lane has.
#include "ptx/instructions/apply.hpp"
#include "ptx/instructions/multiply.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

constexpr std::uint8_t takes_carry = 1, sets_carry = 2;

// a + b + carry, or a - b - carry, of unsigned numbers: also the new carry.
template <class T, bool Subtracts>
T sum_with_carry(T a, T b, bool& carry) {
  const Double<T> left = a, right = b;
  const Double<T> sum = Subtracts ? left - right - carry : left + right + carry;
  carry = (sum >> (8 * sizeof(T)) & 1) != 0;
  return static_cast<T>(sum);
}

// slots: d, a, b, carry
template <class T, bool Subtracts>
void add_with_carry(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::vector<Slot>& slots = instruction.slots;
  const Mask before = (instruction.mode & takes_carry) != 0 ? warp.lanes.predicate(slots[3]) : 0;
  Mask after = 0;
  each_lane(mask, [&](int lane) {
    bool carry = (before >> lane & 1) != 0;
    const T sum = sum_with_carry<T, Subtracts>(warp.lanes.get<T>(slots[1], lane),
                                               warp.lanes.get<T>(slots[2], lane), carry);
    warp.lanes.put<T>(slots[0], lane, sum);
    after |= static_cast<Mask>(carry) << lane;
  });
  if ((instruction.mode & sets_carry) != 0) warp.lanes.put_predicate(slots[3], mask, after);
}

// slots: d, a, b, c, carry; Product is that of the signed or the unsigned type.
template <class T, bool IsHigh>
void mad_with_carry(Warp& warp, const Instruction& instruction, Mask mask) {
  using U = std::make_unsigned_t<T>;
  const std::vector<Slot>& slots = instruction.slots;
  const Mask before = (instruction.mode & takes_carry) != 0 ? warp.lanes.predicate(slots[4]) : 0;
  Mask after = 0;
  each_lane(mask, [&](int lane) {
    const T a = warp.lanes.get<T>(slots[1], lane), b = warp.lanes.get<T>(slots[2], lane);
    bool carry = (before >> lane & 1) != 0;
    const U product = static_cast<U>(IsHigh ? high_product(a, b) : low_product(a, b));
    const U sum = sum_with_carry<U, false>(product, warp.lanes.get<U>(slots[3], lane), carry);
    warp.lanes.put<U>(slots[0], lane, sum);
    after |= static_cast<Mask>(carry) << lane;
  });
  if ((instruction.mode & sets_carry) != 0) warp.lanes.put_predicate(slots[4], mask, after);
}

std::uint8_t carry_mode(Lowering& lowering, std::string_view name_with_carry) {
  const bool takes = lowering.opcode() == name_with_carry;
  return static_cast<std::uint8_t>((takes ? takes_carry : 0) |
                                   (lowering.take("cc") ? sets_carry : 0));
}

void lower_sum_with_carry(Lowering& lowering) {
  const bool subtracts = lowering.opcode().starts_with("sub");
  const std::uint8_t mode = carry_mode(lowering, subtracts ? "subc" : "addc");
  const Type type = lowering.take_type();
  const bool is_wide = bits_of(type) == 64;
  if (!is_wide && bits_of(type) != 32) lowering.invalid("it needs a type of 32 or 64 bits");
  const Handler run =
      is_wide
          ? (subtracts ? add_with_carry<std::uint64_t, true> : add_with_carry<std::uint64_t, false>)
          : (subtracts ? add_with_carry<std::uint32_t, true>
                       : add_with_carry<std::uint32_t, false>);
  lowering
      .emit(run, {lowering.target(0, type), lowering.source(1, type), lowering.source(2, type),
                  lowering.carry()})
      .mode = mode;
}

}  // namespace

void lower_mad_with_carry(Lowering& lowering) {
  const std::uint8_t mode = carry_mode(lowering, "madc");
  const bool is_high = lowering.take("hi");
  if (!is_high && !lowering.take("lo")) lowering.invalid("it needs .lo or .hi");
  const Type type = lowering.take_type();
  const Handler run = for_integers(type, [&]<class T>() -> Handler {
    if constexpr (sizeof(T) >= 4)
      return is_high ? mad_with_carry<T, true> : mad_with_carry<T, false>;
    else
      return nullptr;
  });
  if (run == nullptr) lowering.invalid("it needs a type of 32 or 64 bits");
  lowering
      .emit(run, {lowering.target(0, type), lowering.source(1, type), lowering.source(2, type),
                  lowering.source(3, type), lowering.carry()})
      .mode = mode;
}

namespace {

constexpr Opcode carry_table[] = {
    {"addc", TypeKind::integer, lower_sum_with_carry},
    {"subc", TypeKind::integer, lower_sum_with_carry},
    {"madc", TypeKind::integer, lower_mad_with_carry},
    // add.cc and sub.cc: an opcode of their own for find_opcode
    {"add.cc", TypeKind::integer, lower_sum_with_carry},
    {"sub.cc", TypeKind::integer, lower_sum_with_carry},
};

}  // namespace

std::span<const Opcode> carry_opcodes() { return carry_table; }

}  // namespace simulate_gpus::ptx
