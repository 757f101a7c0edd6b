// wmma.load, wmma.mma, wmma.store. The manual leaves the layout of fragments open: here element number e, by rows, is in
// lane e % 32, at place e / 32 of its registers.
#include <bit>

#include "ptx/execution/access.hpp"
#include "ptx/instructions/matrices.hpp"
#include "ptx/instructions/memory_modifiers.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

std::size_t element_bits(Type type) { return type == Type::tf32 ? 32 : bits_of(type); }

struct Fragment {
  const Slot* slots = nullptr;
  Type type = Type::none;

  std::uint64_t get(const Warp& warp, int element) const {
    const auto [slot, shift] = place(element);
    const int lane = element % lane_count;
    const std::uint64_t word = type == Type::f64 ? warp.lanes.get<std::uint64_t>(slot, lane)
                                                 : warp.lanes.get<std::uint32_t>(slot, lane);
    return word >> shift;
  }
  void put(const Warp& warp, int element, std::uint64_t bits) const {
    const auto [slot, shift] = place(element);
    const int lane = element % lane_count;
    if (type == Type::f64) return warp.lanes.put(slot, lane, bits);
    const std::size_t width = element_bits(type);
    const auto mask = static_cast<std::uint32_t>(((std::uint64_t{1} << width) - 1) << shift);
    const std::uint32_t word = warp.lanes.get<std::uint32_t>(slot, lane) & ~mask;
    warp.lanes.put(slot, lane, word | (static_cast<std::uint32_t>(bits << shift) & mask));
  }

 private:
  std::pair<Slot, std::size_t> place(int element) const {
    const std::size_t per_register = type == Type::f64 ? 1 : 32 / element_bits(type);
    const auto number = static_cast<std::size_t>(element / lane_count);
    return {slots[number / per_register], number % per_register * element_bits(type)};
  }
};

// slots: mask, the address, the stride, the registers. targets: rows, columns, whether rows are contiguous. mode: store
void move_fragment(Warp& warp, const Instruction& instruction, Mask) {
  const int rows = instruction.targets[0], columns = instruction.targets[1];
  const bool by_rows = instruction.targets[2] != 0, is_store = instruction.mode != 0;
  const Fragment fragment{instruction.slots.data() + 3, instruction.type};
  const std::size_t bytes = element_bits(instruction.type) / 8;
  const std::uint64_t base = address_of(warp, instruction, instruction.slots[1], 0);
  const std::uint64_t stride = warp.lanes.get<std::uint32_t>(instruction.slots[2], 0);
  if (is_store) ++warp.writes;
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      const std::uint64_t index =
          by_rows ? static_cast<std::uint64_t>(row) * stride + static_cast<std::uint64_t>(column)
                  : static_cast<std::uint64_t>(column) * stride + static_cast<std::uint64_t>(row);
      const int element = row * columns + column;
      const Target target{instruction.space, base + index * bytes, bytes,
                          is_store ? Access::write : Access::read};
      std::byte* const place = find(warp, target, element % lane_count);
      std::uint64_t bits = is_store ? fragment.get(warp, element) : 0;
      if (is_store)
        std::memcpy(place, &bits, bytes);
      else
        std::memcpy(&bits, place, bytes);
      if (!is_store) fragment.put(warp, element, bits);
    }
  }
}

// slots: mask, the registers of d, a, b, c. targets: the shape, the registers of d, a, b, the type of the sums.
template <class Sum>
void multiply_fragments(Warp& warp, const Instruction& instruction, Mask) {
  const Shape shape{instruction.targets[0], instruction.targets[1], instruction.targets[2]};
  const auto sum_type = static_cast<Type>(instruction.targets[6]);
  const Fragment d{instruction.slots.data() + 1, sum_type};
  const Fragment a{d.slots + instruction.targets[3], instruction.type};
  const Fragment b{a.slots + instruction.targets[4], instruction.other_type};
  const Fragment c{b.slots + instruction.targets[5], sum_type};
  Sum left[32 * 16], right[16 * 32], total[32 * 32];
  for (int k = 0; k < shape.m * shape.k; ++k) left[k] = element_of<Sum>(a.type, a.get(warp, k));
  for (int k = 0; k < shape.k * shape.n; ++k) right[k] = element_of<Sum>(b.type, b.get(warp, k));
  const Type read = std::is_same_v<Sum, std::int64_t> ? Type::s32 : sum_type;
  for (int k = 0; k < shape.m * shape.n; ++k) total[k] = element_of<Sum>(read, c.get(warp, k));
  multiply_matrices(shape, left, right, total);
  for (int k = 0; k < shape.m * shape.n; ++k)
    d.put(warp, k, sum_bits(sum_type, total[k], instruction.mode != 0));
}

Type word_of(Type type) { return type == Type::f64 ? Type::b64 : Type::b32; }

// The registers of a fragment must hold its elements.
std::size_t add_fragment(Lowering& lowering, const Operand& operand, int elements, Type type,
                         bool is_target, std::vector<Slot>& slots) {
  const std::vector<Operand> parts =
      operand.kind == Operand::Kind::vector ? operand.parts : std::vector<Operand>{operand};
  const std::size_t width = bits_of(word_of(type));
  if (parts.size() * width * lane_count < static_cast<std::size_t>(elements) * element_bits(type))
    lowering.invalid("a fragment with too few registers");
  for (const Operand& part : parts) {
    slots.push_back(is_target ? lowering.target(part, word_of(type))
                              : lowering.source(part, word_of(type)));
    if (slots.back() == no_slot) lowering.invalid("a result is missing");
  }
  return parts.size();
}

Shape take_wmma_shape(Lowering& lowering) {
  for (const std::string_view name : {"m16n16k16", "m32n8k16", "m8n32k16", "m16n16k8", "m8n8k4"})
    if (lowering.take(name)) return shape_named(name);
  lowering.refuse("that shape");
}

void require_wmma_type(Lowering& lowering, Type type) {
  const bool is_known = type == Type::f16 || type == Type::bf16 || type == Type::tf32 ||
                        type == Type::f32 || type == Type::f64 || type == Type::u8 ||
                        type == Type::s8 || type == Type::s32;
  if (!is_known) lowering.refuse();
}

void lower_move(Lowering& lowering, bool is_store) {
  const std::string_view matrix = lowering.take_one_of({"a", "b", "c", "d"});
  const bool by_rows = lowering.take("row");
  if (!by_rows && !lowering.take("col")) lowering.invalid("it needs .row or .col");
  const Shape shape = take_wmma_shape(lowering);
  const Space space = take_space(lowering);
  const Type type = lowering.take_type();
  require_wmma_type(lowering, type);
  const int rows = matrix == "b" ? shape.k : shape.m, columns = matrix == "a" ? shape.k : shape.n;
  lowering.expect_operands(2, 3);
  Instruction access;
  const Slot base = lowering.address(access, lowering.operand(is_store ? 0 : 1), space);
  const Slot stride =
      lowering.operand_count() == 3
          ? lowering.source(2, Type::u32)
          : lowering.constant(static_cast<std::uint64_t>(by_rows ? columns : rows), false);
  std::vector<Slot> slots = {lowering.constant(all_lanes, false), base, stride};
  add_fragment(lowering, lowering.operand(is_store ? 1 : 0), rows * columns, type, !is_store,
               slots);
  Instruction& instruction = lowering.emit(move_fragment, std::move(slots));
  instruction.flow = Flow::together;
  instruction.space = access.space;
  instruction.immediate = access.immediate;
  instruction.is_wide_address = access.is_wide_address;
  instruction.type = type;
  instruction.mode = is_store ? 1 : 0;
  instruction.targets = {rows, columns, by_rows ? 1 : 0};
}

void lower_product(Lowering& lowering) {
  for (int k = 0; k < 2; ++k)
    if (!lowering.take("row") && !lowering.take("col")) lowering.invalid("it needs two layouts");
  const Shape shape = take_wmma_shape(lowering);
  const bool clamps = lowering.take("satfinite");
  const Type d = lowering.take_type();
  Type a = lowering.take_type(), b = Type::f16, c = a;
  if (a == Type::f16 || a == Type::f32) {  // .dtype.ctype of f16
    a = Type::f16;
  } else {
    b = lowering.take_type();
    c = lowering.take_type();
  }
  for (const Type type : {a, b, c}) require_wmma_type(lowering, type);
  if (d != c) lowering.refuse("results of another type than the sums");
  std::vector<Slot> slots = {lowering.constant(all_lanes, false)};
  lowering.expect_operands(4, 4);
  const auto d_count = static_cast<std::int32_t>(
      add_fragment(lowering, lowering.operand(0), shape.m * shape.n, d, true, slots));
  const auto a_count = static_cast<std::int32_t>(
      add_fragment(lowering, lowering.operand(1), shape.m * shape.k, a, false, slots));
  const auto b_count = static_cast<std::int32_t>(
      add_fragment(lowering, lowering.operand(2), shape.k * shape.n, b, false, slots));
  add_fragment(lowering, lowering.operand(3), shape.m * shape.n, c, false, slots);
  Instruction& instruction = lowering.emit(a == Type::f64   ? multiply_fragments<double>
                                           : c == Type::s32 ? multiply_fragments<std::int64_t>
                                                            : multiply_fragments<float>,
                                           std::move(slots));
  instruction.flow = Flow::together;
  instruction.type = a;
  instruction.other_type = b;
  instruction.mode = clamps ? 1 : 0;
  instruction.targets = {
      shape.m, shape.n, shape.k, d_count, a_count, b_count, static_cast<std::int32_t>(c)};
}

void lower_wmma(Lowering& lowering) {
  const std::string_view what = lowering.take_one_of({"load", "mma", "store"});
  if (what.empty() || !lowering.take("sync") || !lowering.take("aligned")) lowering.refuse();
  if (what == "mma") return lower_product(lowering);
  lower_move(lowering, what == "store");
}

constexpr Opcode wmma_table[] = {{"wmma", TypeKind::any, lower_wmma}};

}  // namespace

std::span<const Opcode> wmma_opcodes() { return wmma_table; }

}  // namespace simulate_gpus::ptx
