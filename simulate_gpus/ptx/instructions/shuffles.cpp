// shfl.sync: each lane reads a register of another one.
#include "ptx/instructions/apply.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

enum ShuffleMode : std::uint8_t { shfl_up, shfl_down, shfl_bfly, shfl_idx };

// The source of a lane: c has the bound in its lowest bits and the mask of segments from bit 8 on.
struct ShuffleSource {
  int lane = 0;
  bool is_inside = false;
};
ShuffleSource source_of(std::uint8_t mode, int lane, std::uint32_t b, std::uint32_t c) {
  const int distance = static_cast<int>(b & 31);
  const int bound = static_cast<int>(c & 31), segment = static_cast<int>(c >> 8 & 31);
  const int first = lane & segment, last = first | (bound & ~segment);
  int source = first | (distance & ~segment);
  if (mode == shfl_up) source = lane - distance;
  if (mode == shfl_down) source = lane + distance;
  if (mode == shfl_bfly) source = lane ^ distance;
  const bool is_inside = mode == shfl_up ? source >= last : source <= last;
  return {is_inside ? source : lane, is_inside};
}

// slots: mask, d, p or none, a, b, c
void shfl(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::vector<Slot>& slots = instruction.slots;
  std::uint32_t values[lane_count];  // d may be a
  std::memcpy(values, warp.lanes.file + slots[3], sizeof values);
  int sources[lane_count];
  const Lanes lanes = warp.lanes;
  const Slot b = slots[4], c = slots[5];
  const std::uint8_t mode = instruction.mode;
  const Mask inside = lanes_where([&](int lane) {
    const ShuffleSource source =
        source_of(mode, lane, lanes.get<std::uint32_t>(b, lane), lanes.get<std::uint32_t>(c, lane));
    sources[lane] = source.lane & 31;
    return source.is_inside;
  });
  if (slots[1] != no_slot)
    for_lanes<std::uint32_t>(lanes, slots[1], mask,
                             [&](int lane) { return values[sources[lane]]; });
  if (slots[2] != no_slot) warp.lanes.put_predicate(slots[2], mask, inside);
}

void lower_shfl(Lowering& lowering) {
  if (!lowering.take("sync")) lowering.refuse("without .sync, as on GPUs since sm_70");
  const std::string_view mode = lowering.take_one_of({"up", "down", "bfly", "idx"});
  if (mode.empty()) lowering.invalid("its mode is missing");
  lowering.take("b32");
  lowering.expect_operands(5, 5);
  Instruction& instruction =
      lowering.emit(shfl, {lowering.source(4, Type::b32), lowering.target(0, Type::b32),
                           lowering.second_target(0, Type::pred), lowering.source(1, Type::b32),
                           lowering.source(2, Type::b32), lowering.source(3, Type::b32)});
  instruction.flow = Flow::together;
  instruction.mode = mode == "up"     ? shfl_up
                     : mode == "down" ? shfl_down
                     : mode == "bfly" ? shfl_bfly
                                      : shfl_idx;
}

constexpr Opcode shuffle_table[] = {{"shfl", TypeKind::any, lower_shfl}};

}  // namespace

std::span<const Opcode> shuffle_opcodes() { return shuffle_table; }

}  // namespace simulate_gpus::ptx
