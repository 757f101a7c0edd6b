#include "ptx/lowering/opcodes.hpp"

#include <map>
#include <utility>

namespace simulate_gpus::ptx {
namespace {

TypeKind kind_of(Type type) {
  if (type == Type::pred) return TypeKind::predicate;
  if (type == Type::u16x2 || type == Type::s16x2) return TypeKind::packed_integer;
  if (is_float(type)) return TypeKind::real;
  if (is_half(type)) return TypeKind::half;
  return is_integer(type) ? TypeKind::integer : TypeKind::any;
}

}  // namespace

OpcodeLowering find_opcode(std::string_view name, Type last_type) {
  static const auto known = [] {
    std::map<std::pair<std::string_view, TypeKind>, OpcodeLowering> map;
    for (const std::span<const Opcode> group :
         {integer_opcodes(),        multiply_opcodes(),      carry_opcodes(),
          packed_integer_opcodes(), bit_opcodes(),           permutation_opcodes(),
          comparison_opcodes(),     selection_opcodes(),     float_opcodes(),
          half_opcodes(),           approximation_opcodes(), conversion_opcodes(),
          video_opcodes(),          move_opcodes(),          address_opcodes(),
          load_store_opcodes(),     atomic_opcodes(),        copy_opcodes(),
          mbarrier_opcodes(),       control_opcodes(),       barrier_opcodes(),
          warp_opcodes(),           shuffle_opcodes(),       matrix_opcodes(),
          matrix_memory_opcodes(),  wmma_opcodes()}) {
      for (const Opcode& opcode : group) map[{opcode.name, opcode.kind}] = opcode.lower;
    }
    return map;
  }();
  const auto exact = known.find({name, kind_of(last_type)});
  if (exact != known.end()) return exact->second;
  const auto any = known.find({name, TypeKind::any});
  return any == known.end() ? nullptr : any->second;
}

}  // namespace simulate_gpus::ptx
