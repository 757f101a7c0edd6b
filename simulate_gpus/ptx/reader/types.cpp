#include "ptx/reader/types.hpp"

#include <array>
#include <unordered_map>

namespace simulate_gpus::ptx {
namespace {

struct TypeFacts {
  Type type;
  std::string_view name;
  std::size_t bits;
};

constexpr std::array type_facts = {
    TypeFacts{Type::none, "", 0},          TypeFacts{Type::pred, "pred", 1},
    TypeFacts{Type::b8, "b8", 8},          TypeFacts{Type::u8, "u8", 8},
    TypeFacts{Type::s8, "s8", 8},          TypeFacts{Type::b16, "b16", 16},
    TypeFacts{Type::u16, "u16", 16},       TypeFacts{Type::s16, "s16", 16},
    TypeFacts{Type::f16, "f16", 16},       TypeFacts{Type::bf16, "bf16", 16},
    TypeFacts{Type::b32, "b32", 32},       TypeFacts{Type::u32, "u32", 32},
    TypeFacts{Type::s32, "s32", 32},       TypeFacts{Type::f32, "f32", 32},
    TypeFacts{Type::tf32, "tf32", 32},     TypeFacts{Type::f16x2, "f16x2", 32},
    TypeFacts{Type::bf16x2, "bf16x2", 32}, TypeFacts{Type::u16x2, "u16x2", 32},
    TypeFacts{Type::s16x2, "s16x2", 32},   TypeFacts{Type::b64, "b64", 64},
    TypeFacts{Type::u64, "u64", 64},       TypeFacts{Type::s64, "s64", 64},
    TypeFacts{Type::f64, "f64", 64},       TypeFacts{Type::b128, "b128", 128},
    TypeFacts{Type::e4m3, "e4m3", 8},      TypeFacts{Type::e5m2, "e5m2", 8},
    TypeFacts{Type::e4m3x2, "e4m3x2", 16}, TypeFacts{Type::e5m2x2, "e5m2x2", 16},
    TypeFacts{Type::u4, "u4", 4},          TypeFacts{Type::s4, "s4", 4},
    TypeFacts{Type::u2, "u2", 2},          TypeFacts{Type::s2, "s2", 2},
    TypeFacts{Type::b1, "b1", 1},
};

const TypeFacts& facts_of(Type type) { return type_facts[static_cast<std::size_t>(type)]; }

}  // namespace

Type type_named(std::string_view name) {
  static const auto types = [] {
    std::unordered_map<std::string_view, Type> map;
    for (const TypeFacts& facts : type_facts) map[facts.name] = facts.type;
    return map;
  }();
  const auto found = types.find(name);
  return found == types.end() ? Type::none : found->second;
}

std::string_view name_of(Type type) { return facts_of(type).name; }
std::size_t bits_of(Type type) { return facts_of(type).bits; }

bool is_integer(Type type) {
  const char kind = facts_of(type).name.empty() ? ' ' : facts_of(type).name[0];
  const std::size_t bits = facts_of(type).bits;
  const bool is_one_number = facts_of(type).name.size() <= 3 && type != Type::e4m3;
  return (kind == 'u' || kind == 's' || kind == 'b') && bits >= 8 && bits <= 64 && is_one_number;
}
bool is_signed(Type type) { return facts_of(type).name.starts_with('s'); }
bool is_float(Type type) { return type == Type::f32 || type == Type::f64; }
bool is_half(Type type) {
  return type == Type::f16 || type == Type::bf16 || type == Type::f16x2 || type == Type::bf16x2;
}

}  // namespace simulate_gpus::ptx
