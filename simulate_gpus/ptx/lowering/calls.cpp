#include <algorithm>

#include "ptx/instructions/builtins.hpp"
#include "ptx/instructions/moves.hpp"
#include "ptx/lowering/lowering.hpp"

namespace simulate_gpus::ptx {

constexpr int most_calls = 100'000;

// call (results), function, (arguments);
void Lowering::call() {
  take("uni");
  std::size_t at = 0;
  std::vector<Operand> results, arguments;
  if (operand(at).kind == Operand::Kind::list) results = operand(at++).parts;
  const Operand& callee = operand(at++);
  if (callee.kind != Operand::Kind::symbol) refuse("a call by a pointer");
  if (at < operand_count() && operand(at).kind == Operand::Kind::list)
    arguments = operand(at++).parts;
  if (at < operand_count()) refuse("a call by a pointer");
  if (results.size() > 1) invalid("more than one result");
  const auto found = source_.functions.find(callee.name);
  const Handler builtin = find_builtin(callee.name);
  if (builtin != nullptr && (found == source_.functions.end() || !found->second.has_body))
    return call_builtin(callee.name, builtin, results.empty() ? nullptr : &results[0], arguments);
  if (callee.name.starts_with("cuda") || callee.name.starts_with("__cudaCDP"))
    refuse(callee.name + ": kernels that launch kernels");
  if (found == source_.functions.end() || !found->second.has_body)
    throw Error(Kind::not_found, "kernel " + kernel_.name + ", PTX line " +
                                     std::to_string(statement_->line) + ": the function " +
                                     callee.name.substr(0, 120) +
                                     " is called, and the module does not define it");
  if (found->second.is_entry) refuse("the call of a kernel");
  call_function(found->second, results, arguments);
}

std::uint64_t Lowering::frame_offset(const Operand& operand) const {
  const SymbolPlace place = symbol(operand);
  if (place.space != Space::local) invalid("an argument that is no .param variable");
  return place.address;
}

// Its arguments are variables of the caller; their places are the instruction's targets, the result's first.
void Lowering::call_builtin(const std::string& name, Handler handler, const Operand* result,
                            const std::vector<Operand>& arguments) {
  std::vector<std::int32_t> places = {
      result == nullptr ? -1 : static_cast<std::int32_t>(frame_offset(*result))};
  for (const Operand& argument : arguments)
    places.push_back(static_cast<std::int32_t>(frame_offset(argument)));
  if (places.size() != builtin_places(name))
    invalid(name + " with " + std::to_string(arguments.size()) + " arguments");
  emit(handler, {}).targets = std::move(places);
}

void Lowering::copy_register(const Operand& from, Slot to, Type type) {
  emit(copy_handler(type),
       {result_in(to), type == Type::pred ? predicate(from) : source(from, type)});
}

// The function's instructions stand where it is called. Its .param variables are those of the caller that are passed.
void Lowering::call_function(const Function& callee, const std::vector<Operand>& results,
                             const std::vector<Operand>& arguments) {
  const bool is_recursive =
      std::ranges::any_of(frames_, [&](const Frame& frame) { return frame.function == &callee; });
  if (is_recursive) refuse("recursion of " + callee.name);
  if (frames_.size() > 200) refuse("calls within too many calls");
  if (arguments.size() != callee.parameters.size() || results.size() != callee.results.size())
    invalid(callee.name + " has other parameters");
  const Statement& statement = *statement_;
  if (++instances_ > most_calls) refuse("the kernel has too many calls, with those of its calls");
  const std::string scope = std::to_string(instances_) + ":";
  const std::string after = scope + " after";
  if (statement.guard >= 0) {  // the lanes without a call go on behind it
    Instruction& skip = emit(nullptr, {});
    skip.flow = Flow::branch;
    skip.guard_negated = !skip.guard_negated;
    fixups_.push_back({program_.code.size() - 1, after, statement.line});
  }
  Frame frame{&callee, scope, {}};
  std::vector<std::pair<Slot, Operand>> registers;
  const auto bind = [&](const VariableDeclaration& parameter, const Operand& passed) {
    if (parameter.reg < 0 && passed.kind == Operand::Kind::symbol) {
      frame_offset(passed);
      frame.bound[parameter.name] = variable_name(passed.name);
    } else if (parameter.reg < 0) {
      refuse("a register for a .param variable");
    }
  };
  for (std::size_t k = 0; k < arguments.size(); ++k) bind(callee.parameters[k], arguments[k]);
  for (std::size_t k = 0; k < results.size(); ++k) bind(callee.results[k], results[k]);

  // Parameters in registers: to be copied before and behind. Slots belong to the function of the last frame.
  frames_.push_back(frame);
  std::vector<Slot> inner;
  for (const VariableDeclaration& parameter : callee.parameters)
    inner.push_back(parameter.reg < 0 ? no_slot : slot_of(parameter.reg));
  const Slot result = callee.results.empty() || callee.results[0].reg < 0
                          ? no_slot
                          : slot_of(callee.results[0].reg);
  frames_.pop_back();
  for (std::size_t k = 0; k < arguments.size(); ++k)
    if (inner[k] != no_slot) copy_register(arguments[k], inner[k], callee.parameters[k].type);
  frames_.push_back(frame);
  body();
  frames_.pop_back();
  statement_ = &statement;
  taken_.assign(statement.modifiers.size(), true);
  if (result != no_slot) {
    const Type type = callee.results[0].type;
    emit(copy_handler(type), {target(results[0], type), result});
  }
  labels_[after] = static_cast<std::int32_t>(program_.code.size());
}

}  // namespace simulate_gpus::ptx
