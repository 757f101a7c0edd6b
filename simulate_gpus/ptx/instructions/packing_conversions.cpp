// cvt.pack: two integers of 32 bits, cut to few bits and put below what is there.
#include <algorithm>

#include "ptx/instructions/apply.hpp"
#include "ptx/instructions/conversions.hpp"
#include "ptx/lowering/lowering.hpp"

namespace simulate_gpus::ptx {
namespace {

struct CvtPack {
  std::uint32_t operator()(const Instruction& instruction, std::int32_t a, std::int32_t b,
                           std::uint32_t rest) const {
    const std::size_t bits = bits_of(instruction.type);
    const std::int64_t count = std::int64_t{1} << bits;
    const std::int64_t low = is_signed(instruction.type) ? -count / 2 : 0;
    const auto cut = [&](std::int32_t value) {
      return static_cast<std::uint32_t>(std::clamp<std::int64_t>(value, low, low + count - 1)) &
             static_cast<std::uint32_t>(count - 1);
    };
    const std::uint32_t above = bits == 16 ? 0 : rest << (2 * bits);
    return above | cut(a) << bits | cut(b);
  }
};

}  // namespace

void lower_packing_conversion(Lowering& lowering) {
  if (!lowering.take("sat")) lowering.invalid("it needs .sat");
  const Type to = lowering.take_type();
  if (lowering.take_type() != Type::s32) lowering.invalid("it converts s32");
  const bool has_rest = bits_of(to) < 16;
  if (has_rest && lowering.take_type() != Type::b32) lowering.invalid("it needs .b32 at the end");
  lowering.expect_operands(has_rest ? 4 : 3, has_rest ? 4 : 3);
  const Slot rest = has_rest ? lowering.source(3, Type::b32) : lowering.constant(0, false);
  lowering
      .emit(apply_with<CvtPack, std::uint32_t, std::int32_t, std::int32_t, std::uint32_t>,
            {lowering.target(0, Type::b32), lowering.source(1, Type::s32),
             lowering.source(2, Type::s32), rest})
      .type = to;
}

}  // namespace simulate_gpus::ptx
