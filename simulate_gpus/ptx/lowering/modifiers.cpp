#include <algorithm>

#include "ptx/lowering/lowering.hpp"

namespace simulate_gpus::ptx {
namespace {

std::string shortened(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

}  // namespace

void Lowering::refuse(const std::string& why) const {
  throw Error(Kind::not_offered,
              "kernel " + shortened(kernel_.name, 100) + ": " + shortened(statement_->text(), 80) +
                  " (PTX line " + std::to_string(statement_->line) + ") is not offered" +
                  (why.empty() ? "" : ": " + shortened(why, 100)) +
                  ". Kernels of simulated GPUs are limited to what the README lists.");
}

void Lowering::invalid(const std::string& why) const {
  throw Error(Kind::invalid_ptx, "kernel " + shortened(kernel_.name, 100) + ": " +
                                     shortened(statement_->text(), 80) + " (PTX line " +
                                     std::to_string(statement_->line) +
                                     ") is not valid: " + shortened(why, 120));
}

const Operand& Lowering::operand(std::size_t number) const {
  if (number >= statement_->operands.size()) invalid("an operand is missing");
  return statement_->operands[number];
}

void Lowering::expect_operands(std::size_t least, std::size_t most) const {
  if (operand_count() < least || operand_count() > most)
    invalid("it has " + std::to_string(operand_count()) + " operands");
}

bool Lowering::has(std::string_view modifier) const {
  return std::ranges::find(statement_->modifiers, modifier) != statement_->modifiers.end();
}

bool Lowering::take(std::string_view modifier) {
  for (std::size_t k = 0; k < taken_.size(); ++k) {
    if (taken_[k] || statement_->modifiers[k] != modifier) continue;
    taken_[k] = true;
    return true;
  }
  return false;
}

std::string_view Lowering::take_one_of(std::initializer_list<std::string_view> modifiers) {
  for (const std::string_view modifier : modifiers)
    if (take(modifier)) return modifier;
  return {};
}

void Lowering::ignore(std::initializer_list<std::string_view> modifiers) {
  for (const std::string_view modifier : modifiers) take(modifier);
}

std::string Lowering::take_any() {
  for (std::size_t k = 0; k < taken_.size(); ++k) {
    if (taken_[k]) continue;
    taken_[k] = true;
    return statement_->modifiers[k];
  }
  return "";
}

Type Lowering::take_type() {
  for (std::size_t k = 0; k < taken_.size(); ++k) {
    if (taken_[k]) continue;
    const Type type = type_named(statement_->modifiers[k]);
    if (type == Type::none) continue;
    taken_[k] = true;
    return type;
  }
  invalid("a type is missing");
}

Type Lowering::take_last_type() {
  for (std::size_t k = taken_.size(); k-- > 0;) {
    if (taken_[k]) continue;
    const Type type = type_named(statement_->modifiers[k]);
    if (type == Type::none) continue;
    taken_[k] = true;
    return type;
  }
  invalid("a type is missing");
}

Type Lowering::last_type() const {
  for (std::size_t k = statement_->modifiers.size(); k-- > 0;) {
    const Type type = type_named(statement_->modifiers[k]);
    if (type != Type::none) return type;
  }
  return Type::none;
}

Rounding Lowering::take_rounding() {
  const std::string_view name = take_one_of({"rn", "rz", "rm", "rp", "rna"});
  if (name == "rz") return Rounding::zero;
  if (name == "rm") return Rounding::down;
  if (name == "rp") return Rounding::up;
  return name == "rna" ? Rounding::away : Rounding::nearest;
}

}  // namespace simulate_gpus::ptx
