#include "ptx/reader/scopes.hpp"

namespace simulate_gpus::ptx {
namespace {

// The place of a component in its vector: .x .y .z .w, or .r .g .b .a; -1 if there is none.
int component(std::string_view selector, int parts) {
  if (selector.size() != 1 || parts == 1) return -1;
  std::size_t place = std::string_view("xyzw").find(selector[0]);
  if (place == std::string_view::npos) place = std::string_view("rgba").find(selector[0]);
  return place < static_cast<std::size_t>(parts) ? static_cast<int>(place) : -1;
}

}  // namespace

void Scopes::open() {
  open_.emplace_back();
  open_.back().first_statement = function_->body.size();
  open_.back().number = blocks_++;
}

void Scopes::close() {
  rename_labels(open_.back());
  open_.pop_back();
}

void Scopes::rename_labels(const Scope& scope) {
  if (scope.labels.empty() || scope.number == 0) return;
  const auto rename = [&](std::string& name) {
    const auto found = scope.labels.find(name);
    if (found != scope.labels.end()) name = found->second;
  };
  for (std::size_t k = scope.first_statement; k < function_->body.size(); ++k) {
    Statement& statement = function_->body[k];
    rename(statement.label);
    if (statement.opcode != "bra" && statement.opcode != "brx" && statement.opcode != "call")
      continue;
    for (Operand& operand : statement.operands) rename(operand.name);
  }
  for (const auto& [label, renamed] : scope.labels) {
    const auto targets = function_->branch_targets.find(label);
    if (targets == function_->branch_targets.end()) continue;
    std::vector<std::string> list = std::move(targets->second);
    function_->branch_targets.erase(targets);
    for (std::string& target : list) rename(target);
    function_->branch_targets[renamed] = std::move(list);
  }
}

void Scopes::declare_register(std::string_view name, Type type, int parts) {
  open_.back().registers[std::string(name)] = {type, parts, -1};
}
void Scopes::declare_range(std::string_view prefix, Type type, int parts, std::uint64_t count) {
  open_.back().ranges[std::string(prefix)] = {type, parts, count};
}
std::string Scopes::declare_variable(std::string_view name) {
  const int number = open_.empty() ? 0 : open_.back().number;
  std::string unique = std::string(name) + (number == 0 ? "" : "@" + std::to_string(number));
  if (!open_.empty()) open_.back().variables[std::string(name)] = unique;
  return unique;
}
std::string Scopes::declare_label(std::string_view name) {
  open_.back().labels[std::string(name)] =
      std::string(name) + "@" + std::to_string(open_.back().number);
  return std::string(name);
}

Scopes::Register* Scopes::find_register(std::string_view name) {
  std::size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  for (auto scope = open_.rbegin(); scope != open_.rend(); ++scope) {
    const auto found = scope->registers.find(std::string(name));
    if (found != scope->registers.end()) return &found->second;
    if (scope->variables.contains(std::string(name))) return nullptr;
    // %r12 is of %r<20>, and of %r1<5>.
    for (std::size_t end = digits; end < name.size(); ++end) {
      const auto range = scope->ranges.find(std::string(name.substr(0, end)));
      const std::string_view number = name.substr(end);
      if (range == scope->ranges.end() || number.size() > 9 ||
          (number.size() > 1 && number[0] == '0'))
        continue;
      if (std::stoull(std::string(number)) >= range->second.count) continue;
      const Register fresh{range->second.type, range->second.parts, -1};
      return &scope->registers.emplace(name, fresh).first->second;
    }
  }
  return nullptr;
}

Operand Scopes::use(Register& found, std::string_view selector) {
  if (found.first < 0) {
    found.first = static_cast<int>(function_->registers.size());
    function_->registers.insert(function_->registers.end(), static_cast<std::size_t>(found.parts),
                                found.type);
  }
  const auto one = [&](int place) {
    Operand operand;
    operand.kind = Operand::Kind::reg;
    operand.reg = found.first + place;
    return operand;
  };
  const int place = component(selector, found.parts);
  if (place >= 0) return one(place);
  if (found.parts == 1) {
    Operand operand = one(0);
    operand.selector = selector;
    return operand;
  }
  Operand vector;
  vector.kind = Operand::Kind::vector;
  for (int k = 0; k < found.parts; ++k) vector.parts.push_back(one(k));
  return vector;
}

Operand Scopes::operand_named(std::string_view name) {
  Operand operand;
  if (name == "_") {
    operand.kind = Operand::Kind::sink;
    return operand;
  }
  if (Register* const found = find_register(name)) return use(*found, "");
  const std::size_t dot = name.find('.', 1);
  if (dot != std::string_view::npos) {
    if (Register* const found = find_register(name.substr(0, dot)))
      return use(*found, name.substr(dot + 1));
  }
  operand.kind = Operand::Kind::symbol;
  operand.name = name;
  for (auto scope = open_.rbegin(); scope != open_.rend(); ++scope) {
    const auto variable = scope->variables.find(operand.name);
    if (variable == scope->variables.end()) continue;
    operand.name = variable->second;
    break;
  }
  return operand;
}

}  // namespace simulate_gpus::ptx
