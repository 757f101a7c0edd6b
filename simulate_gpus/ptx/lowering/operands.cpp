#include <bit>

#include "ptx/instructions/moves.hpp"
#include "ptx/lowering/lowering.hpp"

namespace simulate_gpus::ptx {
namespace {

constexpr std::uint64_t most_register_bytes = 64 << 20;

bool is_special(const Operand& operand) {
  return operand.kind == Operand::Kind::symbol &&
         (operand.name.starts_with('%') || operand.name == "WARP_SZ");
}

}  // namespace

Slot Lowering::temporary(std::size_t bits) {
  const std::size_t bytes = bits == 1 ? sizeof(Mask) : lane_count * lane_bytes(bits);
  const Slot slot = file_.add(bytes);
  if (file_.bytes() > most_register_bytes) refuse("the kernel has too many registers");
  return slot;
}

Slot Lowering::slot_of(int reg) {
  const Function* const function = frames_.back().function;
  const auto [found, is_new] = registers_.try_emplace({function, reg}, no_slot);
  if (is_new) {
    const Type type = function->registers.at(static_cast<std::size_t>(reg));
    found->second = temporary(bits_of(type));
    file_.may_share(found->second);
    program_.register_count +=
        type == Type::pred ? 0U : static_cast<std::uint32_t>((bits_of(type) + 31) / 32);
  }
  return found->second;
}

Slot Lowering::constant(std::uint64_t bits, bool is_wide) {
  const auto [found, is_new] = constants_.try_emplace({bits, is_wide}, no_slot);
  if (is_new) {
    found->second = temporary(is_wide ? 64 : 32);
    (is_wide ? program_.wide_constants : program_.constants).emplace_back(found->second, bits);
    file_.mark_steady(found->second);
  }
  return found->second;
}

Slot Lowering::special(const std::string& name, bool is_wide) {
  if (name == "WARP_SZ") return constant(lane_count, is_wide);
  if (name == "%clock" || name == "%clock_hi" || name == "%clock64" || name == "%globaltimer" ||
      name == "%globaltimer_lo" || name == "%globaltimer_hi") {
    const Slot slot = temporary(is_wide ? 64 : 32);
    Instruction& instruction = emit(is_wide ? &read_wide_clock : &read_clock, {slot});
    instruction.mode = name.ends_with("_hi") ? 1 : 0;
    instruction.negated = name.starts_with("%g");
    return slot;
  }
  const SpecialFunction value = find_special(name);
  if (value == nullptr) refuse("the register " + name);
  const auto [found, is_new] = specials_.try_emplace({name, is_wide}, no_slot);
  if (is_new) {
    found->second = temporary(is_wide ? 64 : 32);
    const bool is_steady = !is_of_block(name);
    program_.specials.push_back({value, found->second, is_wide, is_steady});
    if (is_steady) file_.mark_steady(found->second);
  }
  return found->second;
}

Slot Lowering::carry() {
  if (carry_ == no_slot) carry_ = temporary(1);
  return carry_;
}

std::size_t Lowering::register_bits(const Operand& operand) const {
  if (operand.kind != Operand::Kind::reg) return 0;
  return bits_of(function().registers.at(static_cast<std::size_t>(operand.reg)));
}

Slot Lowering::number(const Operand& operand, Type type) {
  std::uint64_t bits = operand.bits;
  if (bits_of(type) > 64) invalid("a number of 128 bits");
  if (operand.is_float && bits_of(type) == 32)
    bits = operand.is_single
               ? operand.single
               : std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
  if (operand.is_float && bits_of(type) < 32) invalid("a number of f32 or f64 for fewer bits");
  const bool is_wide = bits_of(type) > 32;
  return constant(is_wide ? bits : bits & 0xFFFFFFFF, is_wide);
}

Slot Lowering::source(const Operand& operand, Type type) {
  if (operand.kind == Operand::Kind::number) return number(operand, type);
  if (operand.kind == Operand::Kind::reg) {
    if (lane_bytes(register_bits(operand)) != lane_bytes(bits_of(type)) ||
        (register_bits(operand) == 1) != (type == Type::pred))
      invalid("a register of another width than ." + std::string(name_of(type)));
    if (operand.negated) invalid("! before a register that is no predicate");
    if (!operand.selector.empty()) invalid("a part of a register");
    return slot_of(operand.reg);
  }
  if (is_special(operand)) return special(operand.name, bits_of(type) > 32);
  if (is_symbol(operand)) {
    const SymbolPlace place = symbol(operand);
    const bool is_wide = bits_of(type) > 32;
    if (bits_of(type) < 32) invalid("an address in fewer than 32 bits");
    return constant(is_wide ? place.address : place.address & 0xFFFFFFFF, is_wide);
  }
  invalid("an operand that is no register and no number");
}

Slot Lowering::predicate(const Operand& operand) {
  if (operand.kind != Operand::Kind::reg || register_bits(operand) != 1)
    invalid("an operand that is no predicate");
  return slot_of(operand.reg);
}

Slot Lowering::target(const Operand& operand, Type type) {
  if (operand.kind == Operand::Kind::sink) return temporary(bits_of(type));  // which nobody reads
  if (operand.kind != Operand::Kind::reg) invalid("a result that is no register");
  if (operand.negated || !operand.selector.empty()) invalid("a result that is no register");
  if (lane_bytes(register_bits(operand)) != lane_bytes(bits_of(type)) ||
      (register_bits(operand) == 1) != (type == Type::pred))
    invalid("a register of another width than ." + std::string(name_of(type)));
  return result_in(slot_of(operand.reg));
}

Slot Lowering::result_in(Slot slot) {
  file_.note_result(slot);
  return slot;
}

Slot Lowering::second_target(std::size_t number, Type type) {
  const Operand& both = operand(number);
  if (both.second < 0) return no_slot;
  Operand second;
  second.kind = Operand::Kind::reg;
  second.reg = both.second;
  return target(second, type);
}

Slot Lowering::narrowed_source(const Operand& operand, Type type) {
  const std::size_t bits = register_bits(operand);
  if (operand.kind != Operand::Kind::reg || lane_bytes(bits) == lane_bytes(bits_of(type)))
    return source(operand, type);
  if (bits < bits_of(type) || bits > 64 || bits == 1)
    invalid("a register of fewer bits than ." + std::string(name_of(type)));
  const Slot slot = temporary(32);
  emit(&narrow_register, {slot, slot_of(operand.reg)});
  return slot;
}

void Lowering::widen(const Operand& operand, Slot from, Type type) {
  emit(is_signed(type) ? &widen_signed : &widen_unsigned, {result_in(slot_of(operand.reg)), from});
}

std::string Lowering::variable_name(const std::string& name) const {
  const Frame& frame = frames_.back();
  const auto found = frame.bound.find(name);
  return found == frame.bound.end() ? frame.scope + name : found->second;
}

bool Lowering::is_symbol(const Operand& operand) const {
  return operand.kind == Operand::Kind::symbol && !is_special(operand);
}

SymbolPlace Lowering::symbol(const Operand& operand) const {
  const auto added = static_cast<std::uint64_t>(operand.offset);
  const std::string& name = operand.name;
  const std::string local_name = variable_name(name);
  if (const auto found = frame_.find(local_name); found != frame_.end())
    return {Space::local, found->second + added};
  if (const auto found = shared_.find(function().name + "/" + name); found != shared_.end())
    return {Space::shared, found->second + added};
  if (const auto found = parameters_.find(name); found != parameters_.end() && frames_.size() == 1)
    return {Space::parameter, found->second + added};
  for (const VariableDeclaration& variable : function().variables) {
    if (variable.name != name) continue;
    if (variable.space == Space::shared) return {Space::shared, dynamic_shared_ + added};
    refuse("a variable of global or constant memory within a function");
  }
  if (const auto found = shared_.find(name); found != shared_.end())
    return {Space::shared, found->second + added};
  const auto variable = source_.variables.find(name);
  if (variable != source_.variables.end() && variable->second.space == Space::shared)
    return {Space::shared, dynamic_shared_ + added};
  const auto address = addresses_.find(name);
  if (address != addresses_.end()) {
    const Space space =
        variable != source_.variables.end() ? variable->second.space : Space::global;
    return {space, address->second + added};
  }
  if (source_.functions.contains(name)) refuse("the address of the function " + name);
  throw Error(Kind::not_found, "kernel " + kernel_.name + ", PTX line " +
                                   std::to_string(statement_->line) + ": nothing has the name " +
                                   name.substr(0, 120));
}

Slot Lowering::address(Instruction& instruction, const Operand& operand, Space space) {
  if (operand.kind != Operand::Kind::address) invalid("an operand that is no address");
  if (operand.parts.size() > 1) refuse("an address with coordinates");
  instruction.space = space;
  instruction.immediate = operand.offset;
  instruction.is_wide_address = true;
  if (operand.parts.empty()) return constant(0, true);
  const Operand& base = operand.parts[0];
  if (base.kind == Operand::Kind::reg) {
    const std::size_t bits = register_bits(base);
    if (bits != 32 && bits != 64)
      invalid("an address in a register of " + std::to_string(bits) + " bits");
    instruction.is_wide_address = bits == 64;
    if (space == Space::parameter && in_device_function()) instruction.space = Space::local;
    return slot_of(base.reg);
  }
  if (!is_symbol(base)) invalid("an address that is no register and no variable");
  const SymbolPlace place = symbol(base);
  const bool is_global = place.space == Space::global || place.space == Space::constant;
  const bool fits = space == place.space || (space == Space::generic && is_global) ||
                    (space == Space::parameter && place.space == Space::local) ||
                    (space == Space::global && is_global);
  if (!fits) invalid("the variable " + base.name + " is in another memory");
  if (!is_global) instruction.space = place.space;
  instruction.immediate += static_cast<std::int64_t>(place.address);
  return constant(0, true);
}

}  // namespace simulate_gpus::ptx
