// Instructions that work on each lane by itself: from a function of its operands to a handler.
#pragma once

#include <cfenv>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "ptx/execution/warp.hpp"
#include "ptx/reader/types.hpp"

namespace simulate_gpus::ptx {

template <class Result, class F>
inline void for_lanes(const Lanes& lanes, Slot target, Mask mask, F&& function) {
  if (mask == all_lanes) {
    SIMULATE_GPUS_PTX_LANES
    for (int lane = 0; lane < lane_count; ++lane) lanes.put<Result>(target, lane, function(lane));
  } else {
    each_lane(mask, [&](int lane) { lanes.put<Result>(target, lane, function(lane)); });
  }
}

// d = F()(a, b ...): slots are those of d, a, b ...
template <class F, class Result, class... Sources>
void apply(Warp& warp, const Instruction& instruction, Mask mask) {
  const Lanes lanes = warp.lanes;
  const Slot* const slots = instruction.slots.data();
  [&]<std::size_t... Number>(std::index_sequence<Number...>) {
    const Slot source[] = {slots[Number + 1]...};
    for_lanes<Result>(lanes, slots[0], mask, [&](int lane) {
      return static_cast<Result>(F()(lanes.get<Sources>(source[Number], lane)...));
    });
  }
  (std::index_sequence_for<Sources...>());
}

// The same of a function that also takes the instruction: it has modifiers that are rare.
template <class F, class Result, class... Sources>
void apply_with(Warp& warp, const Instruction& instruction, Mask mask) {
  const Lanes lanes = warp.lanes;
  const Slot* const slots = instruction.slots.data();
  [&]<std::size_t... Number>(std::index_sequence<Number...>) {
    each_lane(mask, [&](int lane) {
      lanes.put<Result>(
          slots[0], lane,
          static_cast<Result>(F()(instruction, lanes.get<Sources>(slots[Number + 1], lane)...)));
    });
  }
  (std::index_sequence_for<Sources...>());
}

// What the visitor, a template of a type, has for u16, s16, u32, s32, u64, s64 (b types are read as u); null for others.
template <class Visitor>
Handler for_integers(Type type, Visitor&& visit) {
  switch (type) {
    case Type::b16:
    case Type::u16:
      return visit.template operator()<std::uint16_t>();
    case Type::s16:
      return visit.template operator()<std::int16_t>();
    case Type::b32:
    case Type::u32:
      return visit.template operator()<std::uint32_t>();
    case Type::s32:
      return visit.template operator()<std::int32_t>();
    case Type::b64:
    case Type::u64:
      return visit.template operator()<std::uint64_t>();
    case Type::s64:
      return visit.template operator()<std::int64_t>();
    default:
      return nullptr;
  }
}

// The host rounds as the instruction asks while this exists.
class RoundingScope {
 public:
  explicit RoundingScope(Rounding rounding) : is_nearest_(rounding == Rounding::nearest) {
    if (is_nearest_) return;
    std::fesetround(rounding == Rounding::zero ? FE_TOWARDZERO
                    : rounding == Rounding::up ? FE_UPWARD
                                               : FE_DOWNWARD);
  }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;
  ~RoundingScope() {
    if (!is_nearest_) std::fesetround(FE_TONEAREST);
  }

 private:
  bool is_nearest_;
};

}  // namespace simulate_gpus::ptx
