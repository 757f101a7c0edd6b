// Two integers of 16 bits in a register: add, min, max of u16x2 and s16x2.
#include <algorithm>

#include "ptx/instructions/apply.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

template <class F, class T>
struct InHalves {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const {
    const auto low = static_cast<std::uint16_t>(F()(static_cast<T>(a), static_cast<T>(b)));
    const auto high =
        static_cast<std::uint16_t>(F()(static_cast<T>(a >> 16), static_cast<T>(b >> 16)));
    return low | std::uint32_t{high} << 16;
  }
};
// clang-format off
struct AddHalf { int operator()(int a, int b) const { return a + b; } };
struct MinHalf { int operator()(int a, int b) const { return std::min(a, b); } };
struct MaxHalf { int operator()(int a, int b) const { return std::max(a, b); } };
// clang-format on
template <class F>
struct NotBelowZero {
  int operator()(int a, int b) const { return std::max(F()(a, b), 0); }
};

template <class F>
Handler in_halves(Type type, bool is_relu) {
  using Word = std::uint32_t;
  if (type == Type::s16x2)
    return is_relu ? apply<InHalves<NotBelowZero<F>, std::int16_t>, Word, Word, Word>
                   : apply<InHalves<F, std::int16_t>, Word, Word, Word>;
  return is_relu ? nullptr : apply<InHalves<F, std::uint16_t>, Word, Word, Word>;
}

void lower_packed_integer(Lowering& lowering) {
  const std::string& name = lowering.opcode();
  const bool is_relu = name != "add" && lowering.take("relu");
  const Type type = lowering.take_type();
  const Handler run = name == "add"   ? in_halves<AddHalf>(type, is_relu)
                      : name == "min" ? in_halves<MinHalf>(type, is_relu)
                                      : in_halves<MaxHalf>(type, is_relu);
  if (run == nullptr) lowering.refuse();
  lowering.emit(run,
                {lowering.target(0, type), lowering.source(1, type), lowering.source(2, type)});
}

constexpr Opcode packed_integer_table[] = {
    {"add", TypeKind::packed_integer, lower_packed_integer},
    {"min", TypeKind::packed_integer, lower_packed_integer},
    {"max", TypeKind::packed_integer, lower_packed_integer},
};

}  // namespace

std::span<const Opcode> packed_integer_opcodes() { return packed_integer_table; }

}  // namespace simulate_gpus::ptx
