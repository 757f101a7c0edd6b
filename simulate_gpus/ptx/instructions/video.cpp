// Video instructions: vadd, vsub, vabsdiff, vmin, vmax, vset, vshl, vshr, vmad of parts of registers, and their forms of two
// and four parts.
#include <algorithm>
#include <array>

#include "ptx/instructions/apply.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

enum VideoOperation : std::uint8_t {
  v_add,
  v_sub,
  v_absdiff,
  v_min,
  v_max,
  v_avrg,
  v_shl,
  v_shr,
  v_set,
  v_mad
};
enum Second : std::uint8_t { no_second, second_add, second_min, second_max };

// What an instruction asks for, in its targets, in this order.
enum VideoField {
  f_operation,
  f_result_signed,
  f_left_signed,
  f_right_signed,
  f_left_part,
  f_right_part,
  f_second,
  f_detail,
  f_saturates,
  f_width,
  f_lanes,
  f_count
};
using Fields = std::array<std::int32_t, f_count>;

// Parts: -1 the register; 0 to 3 a byte; 4, 5 a half.
std::int64_t part_of(std::uint32_t word, std::int32_t part, bool is_signed_part) {
  const unsigned width = part < 0 ? 32 : part < 4 ? 8 : 16;
  const unsigned shift = part < 0   ? 0
                         : part < 4 ? 8 * static_cast<unsigned>(part)
                                    : 16 * static_cast<unsigned>(part - 4);
  const std::uint64_t value = word >> shift & ((std::uint64_t{1} << width) - 1);
  const bool is_negative = is_signed_part && (value >> (width - 1) & 1) != 0;
  return static_cast<std::int64_t>(value) - (is_negative ? std::int64_t{1} << width : 0);
}

std::int64_t clamp_to(std::int64_t value, bool is_signed_result, unsigned width) {
  const std::int64_t count = std::int64_t{1} << width;
  return is_signed_result ? std::clamp(value, -count / 2, count / 2 - 1)
                          : std::clamp<std::int64_t>(value, 0, count - 1);
}

bool compares(std::int32_t comparison, std::int64_t a, std::int64_t b) {
  const bool results[] = {a == b, a != b, a<b, a <= b, a> b, a >= b};
  return results[comparison];
}

std::int64_t video_result(const std::int32_t* fields, std::int64_t a, std::int64_t b) {
  const std::int32_t detail = fields[f_detail];
  switch (fields[f_operation]) {
    case v_add:
      return a + b;
    case v_sub:
      return a - b;
    case v_absdiff:
      return std::abs(a - b);
    case v_min:
      return std::min(a, b);
    case v_max:
      return std::max(a, b);
    case v_avrg:
      return (a + b + (a + b >= 0 ? 1 : 0)) >> 1;
    case v_set:
      return compares(detail, a, b) ? 1 : 0;
    default: {  // vshl, vshr: the count is clamped to 32, or taken modulo 32
      const std::int64_t count = detail != 0 ? std::min<std::int64_t>(b & 0xFFFFFFFF, 32) : b & 31;
      return fields[f_operation] == v_shl
                 ? static_cast<std::int64_t>(static_cast<std::uint64_t>(a) << count)
                 : a >> count;
    }
  }
}

std::uint32_t scalar_video(const std::int32_t* fields, std::uint32_t left, std::uint32_t right,
                           std::uint32_t third) {
  const bool is_signed_result = fields[f_result_signed] != 0;
  const std::int64_t a = part_of(left, fields[f_left_part], fields[f_left_signed] != 0);
  const std::int64_t b = part_of(right, fields[f_right_part], fields[f_right_signed] != 0);
  std::int64_t result = video_result(fields, a, b);
  if (fields[f_saturates] != 0) result = clamp_to(result, is_signed_result, 32);
  if (fields[f_second] == no_second) return static_cast<std::uint32_t>(result);
  const std::int64_t first = part_of(static_cast<std::uint32_t>(result), -1, is_signed_result);
  const std::int64_t other = part_of(third, -1, is_signed_result);
  if (fields[f_second] == second_add) return static_cast<std::uint32_t>(first + other);
  return static_cast<std::uint32_t>(fields[f_second] == second_min ? std::min(first, other)
                                                                   : std::max(first, other));
}

// Each part by itself, or the sum of all and c.
std::uint32_t packed_video(const std::int32_t* fields, std::uint32_t left, std::uint32_t right,
                           std::uint32_t third) {
  const auto width = static_cast<unsigned>(fields[f_width]);
  const bool sums = fields[f_second] == second_add;
  std::uint32_t result = sums ? third : 0;
  for (unsigned k = 0; k < 32 / width; ++k) {
    const auto part = static_cast<std::int32_t>(width == 8 ? k : 4 + k);
    std::int64_t value = video_result(fields, part_of(left, part, fields[f_left_signed] != 0),
                                      part_of(right, part, fields[f_right_signed] != 0));
    if (fields[f_saturates] != 0) value = clamp_to(value, fields[f_result_signed] != 0, width);
    if (sums)
      result += static_cast<std::uint32_t>(value);
    else
      result |= (static_cast<std::uint32_t>(value) & ((1U << width) - 1)) << (width * k);
  }
  return result;
}

// a b + c, without losing bits, then moved right; .sat clamps.
std::uint32_t multiply_add(const std::int32_t* fields, std::uint32_t left, std::uint32_t right,
                           std::uint32_t third) {
  const bool is_signed_sum = fields[f_left_signed] != 0 || fields[f_right_signed] != 0;
  const std::int64_t a = part_of(left, fields[f_left_part], fields[f_left_signed] != 0);
  const std::int64_t b = part_of(right, fields[f_right_part], fields[f_right_signed] != 0);
  __extension__ using Sum = __int128;
  Sum sum = static_cast<Sum>(a) * b + part_of(third, -1, is_signed_sum);
  sum >>= fields[f_detail];
  if (fields[f_saturates] != 0) {
    const Sum low = is_signed_sum ? -0x80000000LL : 0,
              high = is_signed_sum ? 0x7FFFFFFFLL : 0xFFFFFFFFLL;
    sum = std::clamp(sum, low, high);
  }
  return static_cast<std::uint32_t>(sum);
}

// slots: d, a, b, c
template <auto Function>
void video(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::vector<Slot>& slots = instruction.slots;
  each_lane(mask, [&](int lane) {
    const auto word = [&](std::size_t k) { return warp.lanes.get<std::uint32_t>(slots[k], lane); };
    warp.lanes.put(slots[0], lane, Function(instruction.targets.data(), word(1), word(2), word(3)));
  });
}

std::int32_t part_named(Lowering& lowering, Operand& operand) {
  static constexpr std::array<std::string_view, 6> names = {"b0", "b1", "b2", "b3", "h0", "h1"};
  if (operand.selector.empty()) return -1;
  for (std::size_t k = 0; k < names.size(); ++k) {
    if (operand.selector != names[k]) continue;
    operand.selector.clear();
    return static_cast<std::int32_t>(k);
  }
  lowering.refuse("the part ." + operand.selector);
}

VideoOperation operation_named(Lowering& lowering, std::string_view name) {
  static constexpr std::array<std::string_view, 10> names = {
      "vadd", "vsub", "vabsdiff", "vmin", "vmax", "vavrg", "vshl", "vshr", "vset", "vmad"};
  for (std::size_t k = 0; k < names.size(); ++k)
    if (name == names[k]) return static_cast<VideoOperation>(k);
  lowering.refuse();
}

void take_detail(Lowering& lowering, Fields& fields) {
  static constexpr std::array<std::string_view, 6> comparison_names = {"eq", "ne", "lt",
                                                                       "le", "gt", "ge"};
  if (fields[f_operation] == v_set)
    for (std::size_t k = 0; k < comparison_names.size(); ++k)
      if (lowering.take(comparison_names[k])) fields[f_detail] = static_cast<std::int32_t>(k);
  if (fields[f_operation] == v_shl || fields[f_operation] == v_shr) {
    fields[f_detail] = lowering.take("clamp") ? 1 : 0;
    lowering.take("wrap");
  }
  if (fields[f_operation] == v_mad)
    fields[f_detail] = lowering.take("shr7") ? 7 : lowering.take("shr15") ? 15 : 0;
}

void lower_video(Lowering& lowering) {
  std::string_view name = lowering.opcode();
  Fields fields = {};
  fields[f_lanes] = name.ends_with('2') || name.ends_with('4') ? 1 : 0;
  fields[f_width] = name.ends_with('2') ? 16 : 8;
  if (fields[f_lanes] != 0) name.remove_suffix(1);
  fields[f_operation] = operation_named(lowering, name);
  if (fields[f_operation] != v_set) fields[f_result_signed] = is_signed(lowering.take_type());
  fields[f_left_signed] = is_signed(lowering.take_type());
  fields[f_right_signed] = is_signed(lowering.take_type());
  take_detail(lowering, fields);
  fields[f_saturates] = lowering.take("sat");
  const std::string_view second = lowering.take_one_of({"add", "min", "max"});
  fields[f_second] = second == "add"   ? second_add
                     : second == "min" ? second_min
                     : second == "max" ? second_max
                                       : no_second;
  Operand left = lowering.operand(1), right = lowering.operand(2);
  fields[f_left_part] = part_named(lowering, left);
  fields[f_right_part] = part_named(lowering, right);
  if (left.negated || right.negated ||
      (fields[f_lanes] != 0 && (fields[f_left_part] >= 0 || fields[f_right_part] >= 0)))
    lowering.refuse();
  const bool has_third = lowering.operand_count() == 4;
  // With c and no second operation a part of the result would be merged into c; of all parts nothing of c stays.
  if (has_third && fields[f_second] == no_second && fields[f_operation] != v_mad &&
      fields[f_lanes] == 0)
    lowering.refuse("a merge into c");
  const Slot third = has_third ? lowering.source(3, Type::b32) : lowering.constant(0, false);
  const Handler handler = fields[f_lanes] != 0           ? video<packed_video>
                          : fields[f_operation] == v_mad ? video<multiply_add>
                                                         : video<scalar_video>;
  lowering
      .emit(handler, {lowering.target(0, Type::b32), lowering.source(left, Type::b32),
                      lowering.source(right, Type::b32), third})
      .targets.assign(fields.begin(), fields.end());
}

constexpr Opcode video_table[] = {
    {"vadd", TypeKind::any, lower_video},      {"vsub", TypeKind::any, lower_video},
    {"vabsdiff", TypeKind::any, lower_video},  {"vmin", TypeKind::any, lower_video},
    {"vmax", TypeKind::any, lower_video},      {"vshl", TypeKind::any, lower_video},
    {"vshr", TypeKind::any, lower_video},      {"vset", TypeKind::any, lower_video},
    {"vmad", TypeKind::any, lower_video},      {"vadd2", TypeKind::any, lower_video},
    {"vsub2", TypeKind::any, lower_video},     {"vavrg2", TypeKind::any, lower_video},
    {"vabsdiff2", TypeKind::any, lower_video}, {"vmin2", TypeKind::any, lower_video},
    {"vmax2", TypeKind::any, lower_video},     {"vset2", TypeKind::any, lower_video},
    {"vadd4", TypeKind::any, lower_video},     {"vsub4", TypeKind::any, lower_video},
    {"vavrg4", TypeKind::any, lower_video},    {"vabsdiff4", TypeKind::any, lower_video},
    {"vmin4", TypeKind::any, lower_video},     {"vmax4", TypeKind::any, lower_video},
    {"vset4", TypeKind::any, lower_video},
};

}  // namespace

std::span<const Opcode> video_opcodes() { return video_table; }

}  // namespace simulate_gpus::ptx
