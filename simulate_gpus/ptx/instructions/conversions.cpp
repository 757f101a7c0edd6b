// cvt between integers and floats, with every rounding and modifier: each number goes through an exact form.
#include "ptx/instructions/conversions.hpp"

#include <algorithm>
#include <cmath>

#include "ptx/instructions/apply.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

bool is_whole(Type type) { return is_integer(type); }

// What a source holds: a float is within double, an integer within 65 bits.
struct Number {
  bool is_integer = false, is_negative = false;
  std::uint64_t magnitude = 0;
  double value = 0;
};

Number read_number(std::uint64_t bits, Type type) {
  Number number;
  const std::size_t width = bits_of(type);
  if (width < 64) bits &= (std::uint64_t{1} << width) - 1;
  if (!is_whole(type)) {
    number.value = decode(format_of(type), bits);
    if (type == Type::f64) number.value = std::bit_cast<double>(bits);
    return number;
  }
  number.is_integer = true;
  number.is_negative = is_signed(type) && (bits >> (width - 1) & 1) != 0;
  const std::uint64_t extended =
      number.is_negative && width < 64 ? bits | ~((std::uint64_t{1} << width) - 1) : bits;
  number.magnitude = number.is_negative ? 0 - extended : bits;
  return number;
}

// The nearest integer of the type, as its bits.
std::uint64_t clamped(const Number& number, Type type) {
  const std::size_t width = bits_of(type);
  const std::uint64_t top = std::uint64_t{1} << (width - 1);
  if (!is_signed(type)) {
    const std::uint64_t largest = top + (top - 1);
    return number.is_negative ? 0 : std::min(number.magnitude, largest);
  }
  if (number.is_negative) return 0 - std::min(number.magnitude, top);
  return std::min(number.magnitude, top - 1);
}

Number whole_number(double value, Rounding rounding) {
  Number number;
  number.is_integer = true;
  const double whole = round_to_integer(value, rounding);
  number.is_negative = whole < 0;
  number.magnitude =
      std::abs(whole) >= 0x1p64 ? ~std::uint64_t{0} : static_cast<std::uint64_t>(std::abs(whole));
  return number;
}

// Whether .ftz makes a result of f32 zero: if it is below the normal numbers when it is rounded as if there were more of
// them.
bool is_flushed(double value, Rounding rounding) {
  if (!(std::abs(value) < 0x1p-126)) return false;
  const std::uint64_t rounded = encode(format_of(Type::f32), value * 0x1p126, rounding, false);
  return (rounded & 0x7FFFFFFF) < 0x3F800000;
}

// A card has zero, or, where 64 bits are on one side, the top bit of the integer alone.
std::uint64_t integer_of_nan(Type from, Type to) {
  return bits_of(from) == 64 || bits_of(to) == 64 ? std::uint64_t{1} << (bits_of(to) - 1) : 0;
}

// What .ftz, .sat and .relu do to the bits of a result.
std::uint64_t finished(std::uint64_t bits, Type type, const Rules& rules) {
  const Format& format = format_of(type);
  const std::uint64_t sign = std::uint64_t{1} << (format.exponent_bits + format.fraction_bits);
  const std::uint64_t magnitude = bits & (sign - 1);
  const std::uint64_t infinity = ((std::uint64_t{1} << format.exponent_bits) - 1)
                                 << format.fraction_bits;
  const bool is_nan = format.has_infinity ? magnitude > infinity : magnitude == format.nan;
  if (rules.ftz && type == Type::f32 && magnitude >> format.fraction_bits == 0) bits &= sign;
  const std::uint64_t one = static_cast<std::uint64_t>(format.bias()) << format.fraction_bits;
  if (rules.sat) return is_nan || (bits & sign) != 0 ? 0 : std::min(bits, one);
  if (rules.relu && !is_nan && (bits & sign) != 0) return 0;
  return bits;
}

std::uint64_t converted(std::uint64_t bits, Type from, Type to, const Rules& rules,
                        bool is_finite) {
  Number number = read_number(bits, from);
  if (number.is_integer && is_whole(to)) {
    if (rules.sat) return clamped(number, to);
    return number.is_negative ? 0 - number.magnitude : number.magnitude;
  }
  const Format& format = format_of(to);
  if (number.is_integer)
    return finished(
        encode(format, number.is_negative, number.magnitude, 0, rules.rounding, is_finite), to,
        rules);
  if (rules.ftz && from == Type::f32 && to != Type::f16 && std::abs(number.value) < 0x1p-126)
    number.value = std::copysign(0.0, number.value);
  if (rules.ftz && from == Type::f64 && is_flushed(number.value, rules.rounding))
    number.value = std::copysign(0.0, number.value);
  if (to == Type::tf32 && rules.rounding == Rounding::away && number.value != number.value)
    return bits & 0xFFFFE000;
  if (is_whole(to) && number.value != number.value) return integer_of_nan(from, to);
  if (is_whole(to)) return clamped(whole_number(number.value, rules.rounding), to);
  if (rules.to_integer) number.value = round_to_integer(number.value, rules.rounding);
  if (to == Type::f64 && number.value != number.value && !rules.sat)
    return std::bit_cast<std::uint64_t>(number.value);
  return finished(encode(format, number.value, rules.rounding, is_finite), to, rules);
}

std::uint64_t read_bits(const Lanes& lanes, Slot slot, int lane, Type type) {
  return bits_of(type) > 32 ? lanes.get<std::uint64_t>(slot, lane)
                            : lanes.get<std::uint32_t>(slot, lane);
}

// slots: d, a; `type` of the result, `other_type` of the source; mode: .satfinite
void convert(Warp& warp, const Instruction& instruction, Mask mask) {
  const Type to = instruction.type, from = instruction.other_type;
  each_lane(mask, [&](int lane) {
    const std::uint64_t source = read_bits(warp.lanes, instruction.slots[1], lane, from);
    std::uint64_t bits = converted(source, from, to, instruction.rules, instruction.mode != 0);
    const std::size_t width = bits_of(to);
    if (width > 32) return warp.lanes.put(instruction.slots[0], lane, bits);
    if (width < 32) {  // narrow results fill their register as narrow loads do
      bits &= (std::uint64_t{1} << width) - 1;
      if (is_signed(to) && (bits >> (width - 1) & 1) != 0)
        bits |= ~((std::uint64_t{1} << width) - 1);
    }
    warp.lanes.put(instruction.slots[0], lane, static_cast<std::uint32_t>(bits));
  });
}

// Two results in a register. slots: d, a, b: a is the upper one. Or d, a, none: the two halves of a.
void convert_pair(Warp& warp, const Instruction& instruction, Mask mask) {
  const Type to = instruction.type, from = instruction.other_type;
  const std::size_t width = bits_of(to), source_width = bits_of(from);
  each_lane(mask, [&](int lane) {
    std::uint64_t upper = read_bits(warp.lanes, instruction.slots[1], lane, from), lower = 0;
    if (instruction.slots[2] == no_slot) {
      lower = upper;
      upper >>= source_width;
    } else {
      lower = read_bits(warp.lanes, instruction.slots[2], lane, from);
    }
    const auto one = [&](std::uint64_t bits) {
      return converted(bits, from, to, instruction.rules, instruction.mode != 0);
    };
    warp.lanes.put(instruction.slots[0], lane,
                   static_cast<std::uint32_t>(one(upper) << width | one(lower)));
  });
}

Rules take_rules(Lowering& lowering) {
  Rules rules;
  const std::string_view whole = lowering.take_one_of({"rni", "rzi", "rmi", "rpi"});
  rules.to_integer = !whole.empty();
  if (whole.empty())
    rules.rounding = lowering.take_rounding();
  else
    rules.rounding = whole == "rzi"   ? Rounding::zero
                     : whole == "rmi" ? Rounding::down
                     : whole == "rpi" ? Rounding::up
                                      : Rounding::nearest;
  rules.ftz = lowering.take("ftz");
  rules.sat = lowering.take("sat");
  rules.relu = lowering.take("relu");
  return rules;
}

Type half_of(Type type) {
  switch (type) {
    case Type::f16x2:
      return Type::f16;
    case Type::bf16x2:
      return Type::bf16;
    case Type::e4m3x2:
      return Type::e4m3;
    case Type::e5m2x2:
      return Type::e5m2;
    default:
      return Type::none;
  }
}

void lower_pair(Lowering& lowering, Type to, Type from, const Rules& rules, bool is_finite) {
  const bool is_split = half_of(from) != Type::none;
  std::vector<Slot> slots = {lowering.target(0, to), lowering.source(1, from),
                             is_split ? no_slot : lowering.source(2, from)};
  lowering.expect_operands(is_split ? 2 : 3, is_split ? 2 : 3);
  Instruction& instruction = lowering.emit(convert_pair, std::move(slots));
  instruction.type = half_of(to);
  instruction.other_type = is_split ? half_of(from) : from;
  instruction.rules = rules;
  instruction.mode = is_finite ? 1 : 0;
}

void lower_cvt(Lowering& lowering) {
  if (lowering.take("pack")) return lower_packing_conversion(lowering);
  const Rules rules = take_rules(lowering);
  const bool is_finite = lowering.take("satfinite");
  const Type to = lowering.take_type(), from = lowering.take_type();
  if (half_of(to) != Type::none) return lower_pair(lowering, to, from, rules, is_finite);
  if (half_of(from) != Type::none || to == Type::pred || from == Type::pred || bits_of(to) < 8 ||
      bits_of(from) < 8 || bits_of(to) > 64 || bits_of(from) > 64)
    lowering.refuse();
  lowering.expect_operands(2, 2);
  const Operand& result = lowering.operand(0);
  const bool widens = bits_of(to) <= 32 && lowering.register_bits(result) == 64;
  const Slot source = lowering.narrowed_source(lowering.operand(1), from);
  const Slot target = widens ? lowering.temporary(32) : lowering.target(result, to);
  const Handler fast = fast_conversion(to, from, rules, is_finite);
  Instruction& instruction = lowering.emit(fast != nullptr ? fast : convert, {target, source});
  instruction.type = to;
  instruction.other_type = from;
  instruction.rules = rules;
  instruction.mode = is_finite ? 1 : 0;
  if (widens) lowering.widen(result, target, to);
}

constexpr Opcode conversion_table[] = {{"cvt", TypeKind::any, lower_cvt}};

}  // namespace

std::span<const Opcode> conversion_opcodes() { return conversion_table; }

}  // namespace simulate_gpus::ptx
