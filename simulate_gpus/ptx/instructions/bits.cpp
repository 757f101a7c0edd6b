// Bits: and, or, xor, not, cnot, shl, shr, popc, clz, brev, bfind, fns, bfe, bfi, bmsk, szext.
#include <algorithm>
#include <bit>

#include "ptx/instructions/apply.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

template <class T>
constexpr unsigned width = 8 * sizeof(T);

// clang-format off
struct AndBits { template <class T> T operator()(T a, T b) const { return static_cast<T>(a & b); } };
struct OrBits { template <class T> T operator()(T a, T b) const { return static_cast<T>(a | b); } };
struct XorBits { template <class T> T operator()(T a, T b) const { return static_cast<T>(a ^ b); } };
struct NotBits { template <class T> T operator()(T a) const { return static_cast<T>(~a); } };
struct Cnot { template <class T> T operator()(T a) const { return static_cast<T>(a == 0); } };
// clang-format on

// Shifts by the width or more leave zeros, or signs.
struct Shl {
  template <class T>
  T operator()(T a, std::uint32_t count) const {
    return count >= width<T> ? T{0} : static_cast<T>(a << count);
  }
};
struct Shr {
  template <class T>
  T operator()(T a, std::uint32_t count) const {
    if constexpr (std::is_signed_v<T>) return static_cast<T>(a >> std::min(count, width<T> - 1));
    return count >= width<T> ? T{0} : static_cast<T>(a >> count);
  }
};
struct Popc {
  template <class T>
  std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::popcount(a));
  }
};
struct Clz {
  template <class T>
  std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::countl_zero(a));
  }
};
struct Brev {
  template <class T>
  T operator()(T a) const {
    std::uint64_t bits = a;
    bits = (bits >> 1 & 0x5555555555555555) | (bits & 0x5555555555555555) << 1;
    bits = (bits >> 2 & 0x3333333333333333) | (bits & 0x3333333333333333) << 2;
    bits = (bits >> 4 & 0x0F0F0F0F0F0F0F0F) | (bits & 0x0F0F0F0F0F0F0F0F) << 4;
    bits = __builtin_bswap64(bits);
    return static_cast<T>(bits >> (64 - width<T>));
  }
};
// The place of the highest bit that is not the sign; .shiftamt: how far it is from the top. Without one: all ones.
struct Bfind {
  template <class T>
  std::uint32_t operator()(const Instruction& instruction, T a) const {
    if constexpr (std::is_signed_v<T>) a = a < 0 ? static_cast<T>(~a) : a;
    const int empty = std::countl_zero(static_cast<std::make_unsigned_t<T>>(a));
    if (empty == static_cast<int>(width<T>)) return ~std::uint32_t{0};
    return static_cast<std::uint32_t>(
        instruction.mode != 0 ? empty : static_cast<int>(width<T>) - 1 - empty);
  }
};
// The place of the n-th set bit, from `base` up, or down if n is negative.
struct Fns {
  std::uint32_t operator()(std::uint32_t mask, std::uint32_t base, std::int32_t offset) const {
    if (base > 31) return ~std::uint32_t{0};
    if (offset == 0) return (mask >> base & 1) != 0 ? base : ~std::uint32_t{0};
    const int step = offset > 0 ? 1 : -1;
    std::int64_t left = offset > 0 ? std::int64_t{offset} : -std::int64_t{offset};
    for (int place = static_cast<int>(base); place >= 0 && place < 32; place += step)
      if ((mask >> place & 1) != 0 && --left == 0) return static_cast<std::uint32_t>(place);
    return ~std::uint32_t{0};
  }
};
// Of 32 bits, position and length are the lowest bytes of their registers; of 64 bits a card takes all of them.
template <class T>
std::uint32_t field_number(std::uint32_t value) {
  return sizeof(T) == 4 ? value & 255 : std::min(value, 1024U);
}
// The field of `length` bits at `position`; the sign of s types is the field's last bit, or the number's if it ends before.
struct Bfe {
  template <class T>
  T operator()(T a, std::uint32_t position, std::uint32_t length) const {
    using U = std::make_unsigned_t<T>;
    position = field_number<T>(position);
    length = field_number<T>(length);
    const unsigned last = std::min(position + length - 1, width<T> - 1);
    const bool fills = std::is_signed_v<T> && length != 0 && (static_cast<U>(a) >> last & 1) != 0;
    const unsigned there = position >= width<T> ? 0 : std::min(length, width<T> - position);
    const U mask = there >= width<T> ? static_cast<U>(~U{0}) : static_cast<U>((U{1} << there) - 1);
    const U field =
        position >= width<T> ? U{0} : static_cast<U>(static_cast<U>(a) >> position & mask);
    return static_cast<T>(fills ? field | static_cast<U>(~mask) : field);
  }
};
// b with the lowest `length` bits of a at `position`.
struct Bfi {
  template <class T>
  T operator()(T a, T b, std::uint32_t position, std::uint32_t length) const {
    position = field_number<T>(position);
    length = field_number<T>(length);
    if (position >= width<T>) return b;
    const T ones =
        length >= width<T> ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << length) - 1);
    const T mask = static_cast<T>(ones << position);
    return static_cast<T>((b & ~mask) | (static_cast<T>(a << position) & mask));
  }
};
// Ones, `length` of them from `position` on; .wrap takes both modulo 32.
struct Bmsk {
  std::uint32_t operator()(const Instruction& instruction, std::uint32_t position,
                           std::uint32_t length) const {
    const bool clamps = instruction.mode != 0;
    if (clamps && position >= 32) return 0;
    const std::uint32_t start = position & 31;
    const std::uint32_t end = clamps && length >= 32 ? 32 : std::min(start + (length & 31), 32U);
    return static_cast<std::uint32_t>((std::uint64_t{1} << end) - (std::uint64_t{1} << start));
  }
};
// The lowest `bits` bits, with zeros or their sign before; .wrap takes `bits` modulo 32.
struct Szext {
  template <class T>
  T operator()(const Instruction& instruction, T a, std::uint32_t bits) const {
    if (bits >= 32 && instruction.mode != 0) return a;
    bits &= 31;
    if (bits == 0) return 0;
    return static_cast<T>(static_cast<T>(static_cast<std::uint32_t>(a) << (32 - bits)) >>
                          (32 - bits));
  }
};

template <class F>
Handler same_width(Type type, int sources) {
  return for_integers(type, [&]<class T>() -> Handler {
    if constexpr (std::is_signed_v<T>)
      return nullptr;
    else if constexpr (std::is_invocable_v<F, T>)
      return sources == 1 ? apply<F, T, T> : nullptr;
    else
      return apply<F, T, T, T>;
  });
}

void lower_logic(Lowering& lowering) {
  const std::string& name = lowering.opcode();
  const Type type = lowering.take_type();
  const bool is_unary = name == "not" || name == "cnot";
  const Handler run = name == "and"   ? same_width<AndBits>(type, 2)
                      : name == "or"  ? same_width<OrBits>(type, 2)
                      : name == "xor" ? same_width<XorBits>(type, 2)
                      : name == "not" ? same_width<NotBits>(type, 1)
                                      : same_width<Cnot>(type, 1);
  if (run == nullptr) lowering.invalid("it needs a type of bits");
  std::vector<Slot> slots = {lowering.target(0, type), lowering.source(1, type)};
  if (!is_unary) slots.push_back(lowering.source(2, type));
  lowering.emit(run, std::move(slots));
}

void lower_shift(Lowering& lowering) {
  const bool is_left = lowering.opcode() == "shl";
  const Type type = lowering.take_type();
  const Handler run = for_integers(type, [&]<class T>() -> Handler {
    return is_left ? apply<Shl, T, T, std::uint32_t> : apply<Shr, T, T, std::uint32_t>;
  });
  lowering.emit(
      run, {lowering.target(0, type), lowering.source(1, type), lowering.source(2, Type::u32)});
}

void lower_count(Lowering& lowering) {
  const std::string& name = lowering.opcode();
  const Type type = lowering.take_type();
  if (bits_of(type) < 32) lowering.invalid("it needs a type of 32 or 64 bits");
  const bool is_wide = bits_of(type) == 64;
  using Word = std::uint32_t;
  using Long = std::uint64_t;
  const Handler run = name == "popc" ? (is_wide ? apply<Popc, Word, Long> : apply<Popc, Word, Word>)
                      : name == "clz"
                          ? (is_wide ? apply<Clz, Word, Long> : apply<Clz, Word, Word>)
                          : (is_wide ? apply<Brev, Long, Long> : apply<Brev, Word, Word>);
  const Type result = name == "brev" ? type : Type::u32;
  lowering.emit(run, {lowering.target(0, result), lowering.source(1, type)});
}

void lower_field(Lowering& lowering) {
  const std::string& name = lowering.opcode();
  const bool has_mode = lowering.take_one_of({"shiftamt", "clamp"}) != "";
  if (!has_mode) lowering.take("wrap");
  const Type type = lowering.take_type();
  if (bits_of(type) < 32) lowering.invalid("it needs a type of 32 or 64 bits");
  const Handler run = for_integers(type, [&]<class T>() -> Handler {
    using U = std::make_unsigned_t<T>;
    using Word = std::uint32_t;
    if (name == "bfind") return apply_with<Bfind, Word, T>;
    if (name == "bfe") return apply<Bfe, T, T, Word, Word>;
    if (name == "bfi") return apply<Bfi, U, U, U, Word, Word>;
    if constexpr (sizeof(T) == 4) {
      if (name == "fns") return apply<Fns, Word, Word, Word, std::int32_t>;
      if (name == "bmsk") return apply_with<Bmsk, Word, Word, Word>;
      return apply_with<Szext, T, T, Word>;
    }
    return nullptr;
  });
  if (run == nullptr) lowering.refuse();
  std::vector<Slot> slots = {lowering.target(0, name == "bfind" ? Type::u32 : type)};
  const std::size_t full = name == "bfi" ? 2 : 1;  // operands of the type; the others are counts
  for (std::size_t k = 1; k < lowering.operand_count(); ++k)
    slots.push_back(lowering.source(k, k <= full ? type : Type::u32));
  const std::size_t expected = name == "bfi"                    ? 5
                               : name == "bfind"                ? 2
                               : name == "bfe" || name == "fns" ? 4
                                                                : 3;
  lowering.expect_operands(expected, expected);
  lowering.emit(run, std::move(slots)).mode = has_mode ? 1 : 0;
}

constexpr Opcode bit_table[] = {
    {"and", TypeKind::integer, lower_logic},   {"or", TypeKind::integer, lower_logic},
    {"xor", TypeKind::integer, lower_logic},   {"not", TypeKind::integer, lower_logic},
    {"cnot", TypeKind::integer, lower_logic},  {"shl", TypeKind::integer, lower_shift},
    {"shr", TypeKind::integer, lower_shift},   {"popc", TypeKind::integer, lower_count},
    {"clz", TypeKind::integer, lower_count},   {"brev", TypeKind::integer, lower_count},
    {"bfind", TypeKind::integer, lower_field}, {"fns", TypeKind::integer, lower_field},
    {"bfe", TypeKind::integer, lower_field},   {"bfi", TypeKind::integer, lower_field},
    {"bmsk", TypeKind::integer, lower_field},  {"szext", TypeKind::integer, lower_field},
};

}  // namespace

std::span<const Opcode> bit_opcodes() { return bit_table; }

}  // namespace simulate_gpus::ptx
