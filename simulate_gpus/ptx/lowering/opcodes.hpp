// Which function lowers a statement: by its opcode, and by the kind of its last type.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ptx/reader/types.hpp"

namespace simulate_gpus::ptx {

class Lowering;
using OpcodeLowering = void (*)(Lowering&);

enum class TypeKind : std::uint8_t {
  any,
  integer,
  real,
  half,
  packed_integer,
  predicate,
  bits
};  // real: f32, f64

struct Opcode {
  std::string_view name;
  TypeKind kind = TypeKind::any;
  OpcodeLowering lower = nullptr;
};

// Null, if there is none.
OpcodeLowering find_opcode(std::string_view name, Type last_type);

// Each file of instructions/ has its own.
std::span<const Opcode> integer_opcodes();
std::span<const Opcode> multiply_opcodes();
std::span<const Opcode> carry_opcodes();
std::span<const Opcode> packed_integer_opcodes();
std::span<const Opcode> bit_opcodes();
std::span<const Opcode> permutation_opcodes();
std::span<const Opcode> comparison_opcodes();
std::span<const Opcode> selection_opcodes();
std::span<const Opcode> float_opcodes();
std::span<const Opcode> half_opcodes();
std::span<const Opcode> approximation_opcodes();
std::span<const Opcode> conversion_opcodes();
std::span<const Opcode> video_opcodes();
std::span<const Opcode> move_opcodes();
std::span<const Opcode> address_opcodes();
std::span<const Opcode> load_store_opcodes();
std::span<const Opcode> atomic_opcodes();
std::span<const Opcode> copy_opcodes();
std::span<const Opcode> mbarrier_opcodes();
std::span<const Opcode> control_opcodes();
std::span<const Opcode> barrier_opcodes();
std::span<const Opcode> warp_opcodes();
std::span<const Opcode> shuffle_opcodes();
std::span<const Opcode> matrix_opcodes();
std::span<const Opcode> matrix_memory_opcodes();
std::span<const Opcode> wmma_opcodes();

}  // namespace simulate_gpus::ptx
