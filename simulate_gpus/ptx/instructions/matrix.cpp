// mma.sync: d = a b + c, with matrices spread over the lanes as the manual draws them.
#include <bit>
#include <charconv>

#include "ptx/instructions/matrices.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {

Shape shape_named(std::string_view name) {
  Shape shape;
  const char* at = name.data();
  const char* const end = at + name.size();
  for (const auto& [letter, size] :
       {std::pair{'m', &shape.m}, std::pair{'n', &shape.n}, std::pair{'k', &shape.k}}) {
    if (at == end || *at != letter) return {};
    const auto [next, error] = std::from_chars(at + 1, end, *size);
    if (error != std::errc() || *size < 1 || *size > 256) return {};
    at = next;
  }
  return at == end ? shape : Shape{};
}

namespace {

enum MmaMode : std::uint8_t { mma_plain, mma_clamped, mma_xor, mma_and };

// Registers that hold so many elements, over all lanes.
std::size_t registers_for(int elements, Type type) {
  const std::size_t bits = type == Type::tf32 ? 32 : bits_of(type);
  return static_cast<std::size_t>(elements) * bits /
         (lane_count * std::size_t{type == Type::f64 ? 64U : 32U});
}

std::uint64_t register_of(const Warp& warp, Slot slot, int lane, std::size_t bits) {
  return bits == 64 ? warp.lanes.get<std::uint64_t>(slot, lane)
                    : warp.lanes.get<std::uint32_t>(slot, lane);
}

// The elements of A (16 rows: registers take turns between the upper and the lower half) and of B by columns.
template <class Sum>
void read_factor(const Warp& warp, const Slot* slots, std::size_t registers, Type type,
                 std::size_t width, bool is_tall, int depth, Sum* elements) {
  const int bits = static_cast<int>(bits_of(type)), per_register = static_cast<int>(width) / bits;
  for (int lane = 0; lane < lane_count; ++lane) {
    for (int k = 0; k < static_cast<int>(registers); ++k) {
      const std::uint64_t word = register_of(warp, slots[k], lane, width);
      const int row = (lane >> 2) + (is_tall && (k & 1) != 0 ? 8 : 0);
      const int column = (lane & 3) * per_register + 4 * per_register * (is_tall ? k >> 1 : k);
      for (int place = 0; place < per_register; ++place)
        elements[row * depth + column + place] = element_of<Sum>(type, word >> (place * bits));
    }
  }
}

int sum_place(int lane, int number, int columns) {
  return ((lane >> 2) + 8 * (number >> 1)) * columns + 2 * (lane & 3) + (number & 1);
}

// slots: mask, the registers of d, a, b, c. type: of a, other_type: of b. targets: the shape, the registers of a and b, the type of the sums.
template <class Sum>
void mma(Warp& warp, const Instruction& instruction, Mask) {
  const Shape shape{static_cast<int>(instruction.targets[0]),
                    static_cast<int>(instruction.targets[1]),
                    static_cast<int>(instruction.targets[2])};
  const auto a_registers = static_cast<std::size_t>(instruction.targets[3]),
             b_registers = static_cast<std::size_t>(instruction.targets[4]);
  const auto sum_type = static_cast<Type>(instruction.targets[5]);
  const std::size_t width = instruction.type == Type::f64 ? 64 : 32;
  const bool is_half = sum_type == Type::f16;
  const auto sums = static_cast<std::size_t>(shape.m * shape.n) / lane_count;
  const std::size_t c_registers = is_half ? sums / 2 : sums;
  const Slot* const d = instruction.slots.data() + 1;
  const Slot* const a = d + c_registers;
  const Slot* const b = a + a_registers;
  const Slot* const c = b + b_registers;
  Sum left[16 * 256], by_columns[8 * 256], right[256 * 8], total[16 * 8];
  read_factor(warp, a, a_registers, instruction.type, width, shape.m == 16, shape.k, left);
  read_factor(warp, b, b_registers, instruction.other_type, width, false, shape.k, by_columns);
  for (int step = 0; step < shape.k; ++step)
    for (int column = 0; column < shape.n; ++column)
      right[step * shape.n + column] = by_columns[column * shape.k + step];
  for (int lane = 0; lane < lane_count; ++lane) {
    for (int k = 0; k < static_cast<int>(sums); ++k) {
      const std::uint64_t word = register_of(warp, c[is_half ? k / 2 : k], lane, width) >>
                                 (is_half && (k & 1) != 0 ? 16 : 0);
      const Type type = std::is_same_v<Sum, std::int64_t> ? Type::s32 : sum_type;
      total[sum_place(lane, k, shape.n)] = element_of<Sum>(type, word);
    }
  }
  if constexpr (std::is_same_v<Sum, std::int64_t>) {
    if (instruction.mode >= mma_xor) {
      for (int row = 0; row < shape.m; ++row)
        for (int column = 0; column < shape.n; ++column)
          for (int step = 0; step < shape.k; ++step) {
            const Sum one = left[row * shape.k + step], two = by_columns[column * shape.k + step];
            total[row * shape.n + column] += instruction.mode == mma_xor ? one ^ two : one & two;
          }
    }
  }
  if (instruction.mode < mma_xor) multiply_matrices(shape, left, right, total);
  for (int lane = 0; lane < lane_count; ++lane) {
    std::uint64_t word = 0;
    for (int k = 0; k < static_cast<int>(sums); ++k) {
      const std::uint64_t bits =
          sum_bits(sum_type, total[sum_place(lane, k, shape.n)], instruction.mode == mma_clamped);
      word = is_half && (k & 1) != 0 ? word | bits << 16 : bits;
      const Slot slot = d[is_half ? k / 2 : k];
      if (width == 64)
        warp.lanes.put(slot, lane, word);
      else
        warp.lanes.put(slot, lane, static_cast<std::uint32_t>(word));
    }
  }
}

void add_registers(Lowering& lowering, std::size_t number, std::size_t count, Type type,
                   bool is_target, std::vector<Slot>& slots) {
  const Operand& operand = lowering.operand(number);
  const std::vector<Operand> parts =
      operand.kind == Operand::Kind::vector ? operand.parts : std::vector<Operand>{operand};
  if (parts.size() != count)
    lowering.invalid("operand " + std::to_string(number) + " needs " + std::to_string(count) +
                     " registers");
  for (const Operand& part : parts) {
    slots.push_back(is_target ? lowering.target(part, type) : lowering.source(part, type));
    if (slots.back() == no_slot) lowering.invalid("a result is missing");
  }
}

bool is_mma_type(Type type) {
  return type == Type::f16 || type == Type::bf16 || type == Type::tf32 || type == Type::f64 ||
         type == Type::e4m3 || type == Type::e5m2 || type == Type::u8 || type == Type::s8 ||
         type == Type::u4 || type == Type::s4 || type == Type::b1;
}

void lower_mma(Lowering& lowering) {
  if (!lowering.take("sync") || !lowering.take("aligned")) lowering.refuse();
  if (lowering.has("sp") || lowering.has("sp::ordered_metadata"))
    lowering.refuse("sparse matrices");
  const Shape shape = shape_named(lowering.take_any());
  if (!lowering.take("row") || !lowering.take("col")) lowering.refuse();
  const bool clamps = lowering.take("satfinite");
  std::uint8_t mode = clamps ? mma_clamped : mma_plain;
  if (lowering.take("xor")) mode = mma_xor;
  if (lowering.take("and")) mode = mma_and;
  if (mode >= mma_xor && !lowering.take("popc")) lowering.invalid("it needs .popc");
  const Type result = lowering.take_type(), a = lowering.take_type(), b = lowering.take_type(),
             c = lowering.take_type();
  if (!is_mma_type(a) || !is_mma_type(b) || result != c || bits_of(a) != bits_of(b))
    lowering.refuse();
  if ((a == Type::b1) != (mode >= mma_xor)) lowering.refuse();
  const bool is_double = a == Type::f64,
             is_whole = bits_of(a) <= 8 && a != Type::e4m3 && a != Type::e5m2;
  if ((is_whole && c != Type::s32) || (is_double && c != Type::f64) ||
      (!is_whole && !is_double && c != Type::f32 && (c != Type::f16 || a != Type::f16)))
    lowering.refuse();
  if ((shape.m != 16 && shape.m != 8) || shape.n != 8 || (shape.m == 8 && !is_double && !is_whole))
    lowering.refuse("that shape");
  const std::size_t a_registers = registers_for(shape.m * shape.k, a),
                    b_registers = registers_for(shape.n * shape.k, b);
  if (a_registers == 0 || b_registers == 0) lowering.refuse("that shape");
  const auto sums = static_cast<std::size_t>(shape.m * shape.n) / lane_count;
  const std::size_t c_registers = c == Type::f16 ? sums / 2 : sums;
  const Type word = is_double ? Type::b64 : Type::b32;
  lowering.expect_operands(4, 4);
  std::vector<Slot> slots = {lowering.constant(all_lanes, false)};
  add_registers(lowering, 0, c_registers, word, true, slots);
  add_registers(lowering, 1, a_registers, word, false, slots);
  add_registers(lowering, 2, b_registers, word, false, slots);
  add_registers(lowering, 3, c_registers, word, false, slots);
  Instruction& instruction = lowering.emit(is_double  ? mma<double>
                                           : is_whole ? mma<std::int64_t>
                                                      : mma<float>,
                                           std::move(slots));
  instruction.flow = Flow::together;
  instruction.mode = mode;
  instruction.type = a;
  instruction.other_type = b;
  instruction.targets = {shape.m,
                         shape.n,
                         shape.k,
                         static_cast<std::int32_t>(a_registers),
                         static_cast<std::int32_t>(b_registers),
                         static_cast<std::int32_t>(c)};
}

constexpr Opcode matrix_table[] = {{"mma", TypeKind::any, lower_mma}};

}  // namespace

std::span<const Opcode> matrix_opcodes() { return matrix_table; }

}  // namespace simulate_gpus::ptx
