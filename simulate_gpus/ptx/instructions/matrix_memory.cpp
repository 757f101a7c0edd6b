// ldmatrix, stmatrix, movmatrix: matrices of 8 x 8 halves. Lane 8 k + r has the address of row r of matrix k; of each
// matrix, lane l has the halves 2 (l % 4) and 2 (l % 4) + 1 of row l / 4.
#include "ptx/execution/access.hpp"
#include "ptx/instructions/memory_modifiers.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

using Rows = std::uint16_t[8][8];

std::uint16_t& half_at(Rows& rows, int row, int column, bool is_transposed) {
  return is_transposed ? rows[column][row] : rows[row][column];
}

std::uint32_t pair_of(Rows& rows, int lane, bool is_transposed) {
  const int row = lane >> 2, column = 2 * (lane & 3);
  return half_at(rows, row, column, is_transposed) |
         static_cast<std::uint32_t>(half_at(rows, row, column + 1, is_transposed)) << 16;
}

void put_pair(Rows& rows, int lane, bool is_transposed, std::uint32_t pair) {
  const int row = lane >> 2, column = 2 * (lane & 3);
  half_at(rows, row, column, is_transposed) = static_cast<std::uint16_t>(pair);
  half_at(rows, row, column + 1, is_transposed) = static_cast<std::uint16_t>(pair >> 16);
}

// slots: mask, the address, the registers. mode: .trans
void ldmatrix(Warp& warp, const Instruction& instruction, Mask) {
  const bool is_transposed = instruction.mode != 0;
  Rows matrices[4];
  for (int k = 0; k < instruction.count; ++k)
    for (int row = 0; row < 8; ++row)
      std::memcpy(matrices[k][row],
                  find(warp, instruction, instruction.slots[1], Access::read, 8 * k + row), 16);
  for (int k = 0; k < instruction.count; ++k)
    for (int lane = 0; lane < lane_count; ++lane)
      warp.lanes.put(instruction.slots[2 + static_cast<std::size_t>(k)], lane,
                     pair_of(matrices[k], lane, is_transposed));
}

void stmatrix(Warp& warp, const Instruction& instruction, Mask) {
  ++warp.writes;
  for (int k = 0; k < instruction.count; ++k) {
    Rows rows;
    const Slot slot = instruction.slots[2 + static_cast<std::size_t>(k)];
    for (int lane = 0; lane < lane_count; ++lane)
      put_pair(rows, lane, instruction.mode != 0, warp.lanes.get<std::uint32_t>(slot, lane));
    for (int row = 0; row < 8; ++row)
      std::memcpy(find(warp, instruction, instruction.slots[1], Access::write, 8 * k + row),
                  rows[row], 16);
  }
}

// slots: mask, d, a
void movmatrix(Warp& warp, const Instruction& instruction, Mask) {
  Rows rows;
  for (int lane = 0; lane < lane_count; ++lane)
    put_pair(rows, lane, false, warp.lanes.get<std::uint32_t>(instruction.slots[2], lane));
  for (int lane = 0; lane < lane_count; ++lane)
    warp.lanes.put(instruction.slots[1], lane, pair_of(rows, lane, true));
}

void lower_matrix_memory(Lowering& lowering) {
  const bool is_load = lowering.opcode() == "ldmatrix";
  if (!lowering.take("sync") || !lowering.take("aligned") || !lowering.take("m8n8"))
    lowering.refuse("that shape");
  const std::size_t count = lowering.take("x1")   ? 1
                            : lowering.take("x2") ? 2
                            : lowering.take("x4") ? 4
                                                  : 0;
  if (count == 0) lowering.invalid("it needs .x1, .x2 or .x4");
  const bool is_transposed = lowering.take("trans");
  const Space space = take_space(lowering);
  if (!lowering.take("b16")) lowering.refuse("other types than b16");
  lowering.expect_operands(2, 2);
  const Operand& values = lowering.operand(is_load ? 0 : 1);
  Instruction access;
  std::vector<Slot> slots = {lowering.constant(all_lanes, false),
                             lowering.address(access, lowering.operand(is_load ? 1 : 0), space)};
  const std::vector<Operand> parts =
      values.kind == Operand::Kind::vector ? values.parts : std::vector<Operand>{values};
  if (parts.size() != count) lowering.invalid("a vector of another size");
  for (const Operand& part : parts)
    slots.push_back(is_load ? lowering.target(part, Type::b32) : lowering.source(part, Type::b32));
  for (const Slot slot : slots)
    if (slot == no_slot) lowering.invalid("a result is missing");
  Instruction& instruction = lowering.emit(is_load ? ldmatrix : stmatrix, std::move(slots));
  instruction.flow = Flow::together;
  instruction.space = access.space;
  instruction.immediate = access.immediate;
  instruction.is_wide_address = access.is_wide_address;
  instruction.count = static_cast<std::uint8_t>(count);
  instruction.bytes = 16;
  instruction.mode = is_transposed ? 1 : 0;
}

void lower_movmatrix(Lowering& lowering) {
  if (!lowering.take("sync") || !lowering.take("aligned") || !lowering.take("m8n8") ||
      !lowering.take("trans") || !lowering.take("b16"))
    lowering.refuse();
  lowering
      .emit(movmatrix, {lowering.constant(all_lanes, false), lowering.target(0, Type::b32),
                        lowering.source(1, Type::b32)})
      .flow = Flow::together;
}

constexpr Opcode matrix_memory_table[] = {
    {"ldmatrix", TypeKind::any, lower_matrix_memory},
    {"stmatrix", TypeKind::any, lower_matrix_memory},
    {"movmatrix", TypeKind::any, lower_movmatrix},
};

}  // namespace

std::span<const Opcode> matrix_memory_opcodes() { return matrix_memory_table; }

}  // namespace simulate_gpus::ptx
