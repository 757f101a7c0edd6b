// Integer arithmetic: add, sub, min, max, abs, neg, sad, div, rem.
#include <algorithm>
#include <limits>

#include "ptx/instructions/apply.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

// Sums wrap around: they are those of the unsigned types.
struct AddInteger {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
  }
};
struct SubInteger {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
  }
};
// add.sat.s32, sub.sat.s32
template <int Sign>
struct SaturatedSum {
  std::int32_t operator()(std::int32_t a, std::int32_t b) const {
    const std::int64_t sum = std::int64_t{a} + Sign * std::int64_t{b};
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(
        sum, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()));
  }
};
struct MinInteger {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};
struct MaxInteger {
  template <class T>
  T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};
template <class F>  // min.relu.s32, max.relu.s32
struct AtLeastZero {
  std::int32_t operator()(std::int32_t a, std::int32_t b) const { return std::max(F()(a, b), 0); }
};
struct NegInteger {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a));
  }
};
struct AbsInteger {  // of the smallest number: itself
  template <class T>
  T operator()(T a) const {
    return a < 0 ? NegInteger()(a) : a;
  }
};
struct Sad {  // c + |a - b|
  template <class T>
  T operator()(T a, T b, T c) const {
    const Unsigned<T> difference =
        a < b ? static_cast<Unsigned<T>>(static_cast<Unsigned<T>>(b) - static_cast<Unsigned<T>>(a))
              : static_cast<Unsigned<T>>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
    return static_cast<T>(static_cast<Unsigned<T>>(c) + difference);
  }
};
// By zero a card has all bits set, also of rem. The smallest number by -1 is itself.
struct DivInteger {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(-1);
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return NegInteger()(a);
    return static_cast<T>(a / b);
  }
};
struct RemInteger {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(-1);
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return 0;
    return static_cast<T>(a % b);
  }
};

template <class F>
Handler binary_integer(Type type) {
  return for_integers(type, []<class T>() -> Handler { return apply<F, T, T, T>; });
}

void lower_binary_integer(Lowering& lowering) {
  const std::string& name = lowering.opcode();
  const bool is_saturated = lowering.take("sat"), is_relu = lowering.take("relu");
  const Type type = lowering.take_type();
  Handler run = name == "add"   ? binary_integer<AddInteger>(type)
                : name == "sub" ? binary_integer<SubInteger>(type)
                : name == "min" ? binary_integer<MinInteger>(type)
                : name == "max" ? binary_integer<MaxInteger>(type)
                : name == "div" ? binary_integer<DivInteger>(type)
                                : binary_integer<RemInteger>(type);
  if (is_saturated || is_relu) {
    if (type != Type::s32) lowering.refuse();
    if (is_saturated && name == "add")
      run = apply<SaturatedSum<1>, std::int32_t, std::int32_t, std::int32_t>;
    else if (is_saturated && name == "sub")
      run = apply<SaturatedSum<-1>, std::int32_t, std::int32_t, std::int32_t>;
    else if (is_relu && name == "min")
      run = apply<AtLeastZero<MinInteger>, std::int32_t, std::int32_t, std::int32_t>;
    else if (is_relu && name == "max")
      run = apply<AtLeastZero<MaxInteger>, std::int32_t, std::int32_t, std::int32_t>;
    else
      lowering.refuse();
  }
  lowering.expect_operands(3, 3);
  lowering.emit(run,
                {lowering.target(0, type), lowering.source(1, type), lowering.source(2, type)});
}

void lower_unary_integer(Lowering& lowering) {
  const Type type = lowering.take_type();
  const bool is_neg = lowering.opcode() == "neg";
  const Handler run = for_integers(type, [&]<class T>() -> Handler {
    if constexpr (std::is_signed_v<T>)
      return is_neg ? apply<NegInteger, T, T> : apply<AbsInteger, T, T>;
    else
      return nullptr;
  });
  if (run == nullptr) lowering.refuse();
  lowering.expect_operands(2, 2);
  lowering.emit(run, {lowering.target(0, type), lowering.source(1, type)});
}

void lower_sad(Lowering& lowering) {
  const Type type = lowering.take_type();
  lowering.expect_operands(4, 4);
  lowering.emit(for_integers(type, []<class T>() -> Handler { return apply<Sad, T, T, T, T>; }),
                {lowering.target(0, type), lowering.source(1, type), lowering.source(2, type),
                 lowering.source(3, type)});
}

constexpr Opcode integer_table[] = {
    {"add", TypeKind::integer, lower_binary_integer},
    {"sub", TypeKind::integer, lower_binary_integer},
    {"min", TypeKind::integer, lower_binary_integer},
    {"max", TypeKind::integer, lower_binary_integer},
    {"div", TypeKind::integer, lower_binary_integer},
    {"rem", TypeKind::integer, lower_binary_integer},
    {"abs", TypeKind::integer, lower_unary_integer},
    {"neg", TypeKind::integer, lower_unary_integer},
    {"sad", TypeKind::integer, lower_sad},
};

}  // namespace

std::span<const Opcode> integer_opcodes() { return integer_table; }

}  // namespace simulate_gpus::ptx
