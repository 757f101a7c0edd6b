#include "ptx/lowering/lowering.hpp"

#include <ranges>
#include <set>

#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

constexpr std::size_t most_instructions = 500'000;
constexpr std::uint64_t most_local_bytes = 512 << 10;  // of a thread
// Of a kernel, as PTX 8.1 has them.
constexpr std::uint64_t most_parameter_bytes = 32764;

std::uint64_t aligned(std::uint64_t offset, std::uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

// The functions that a kernel calls, and those that these call.
std::set<const Function*> reached_from(const Source& source, const Function& kernel) {
  std::set<const Function*> reached = {&kernel};
  std::vector<const Function*> waiting = {&kernel};
  while (!waiting.empty()) {
    const Function& function = *waiting.back();
    waiting.pop_back();
    for (const Statement& statement : function.body) {
      if (statement.opcode != "call") continue;
      for (const Operand& operand : statement.operands) {
        const auto found = source.functions.find(operand.name);
        if (found != source.functions.end() && reached.insert(&found->second).second)
          waiting.push_back(&found->second);
      }
    }
  }
  return reached;
}

void collect_names(const std::vector<Operand>& operands, std::set<std::string>& names) {
  for (const Operand& operand : operands) {
    if (!operand.name.empty()) names.insert(operand.name);
    collect_names(operand.parts, names);
  }
}

}  // namespace

Program lower_kernel(const Source& source, const Addresses& addresses, const std::string& kernel) {
  return Lowering(source, addresses, source.functions.at(kernel)).run();
}

Lowering::Lowering(const Source& source, const Addresses& addresses, const Function& kernel)
    : source_(source), addresses_(addresses), kernel_(kernel) {}

Program Lowering::run() {
  program_.kernel = kernel_.name;
  place_shared();
  place_parameters();
  frames_.push_back({&kernel_, "", {}});
  if (!kernel_.refused.empty()) {
    Statement directive;
    directive.opcode = kernel_.refused;
    directive.line = kernel_.line;
    statement_ = &directive;
    refuse("clusters of blocks do not exist");
  }
  body();
  finish();
  return std::move(program_);
}

// Module-level variables that the kernel's functions name, and those within these functions.
void Lowering::place_shared() {
  std::set<std::string> names;
  const std::set<const Function*> reached = reached_from(source_, kernel_);
  for (const Function* function : reached)
    for (const Statement& statement : function->body) collect_names(statement.operands, names);
  std::vector<const VariableDeclaration*> dynamic;
  const auto place = [&](const VariableDeclaration& variable, const std::string& name) {
    if (variable.bytes == 0) return dynamic.push_back(&variable);
    program_.shared_bytes = aligned(program_.shared_bytes, variable.alignment);
    shared_[name] = program_.shared_bytes;
    program_.shared_bytes += variable.bytes;
  };
  for (const auto& [name, variable] : source_.variables)
    if (variable.space == Space::shared && names.contains(name)) place(variable, name);
  for (const Function* function : reached)
    for (const VariableDeclaration& variable : function->variables)
      if (variable.space == Space::shared) place(variable, function->name + "/" + variable.name);
  dynamic_shared_ = aligned(program_.shared_bytes, 16);
  for (const VariableDeclaration* variable : dynamic)
    dynamic_shared_ = aligned(dynamic_shared_, variable->alignment);
  if (!dynamic.empty()) program_.shared_bytes = dynamic_shared_;
}

void Lowering::place_parameters() {
  for (const VariableDeclaration& parameter : kernel_.parameters) {
    program_.parameter_bytes = aligned(program_.parameter_bytes, parameter.alignment);
    parameters_[parameter.name] = program_.parameter_bytes;
    program_.parameters.push_back({program_.parameter_bytes, parameter.bytes, parameter.alignment});
    program_.parameter_bytes += parameter.bytes;
    if (program_.parameter_bytes > most_parameter_bytes)
      throw Error(Kind::invalid_ptx, "kernel " + kernel_.name.substr(0, 150) + " has more than " +
                                         std::to_string(most_parameter_bytes) +
                                         " bytes of parameters");
  }
}

void Lowering::place_variables(const Frame& frame) {
  const auto place = [&](const VariableDeclaration& variable) {
    program_.local_bytes = aligned(program_.local_bytes, variable.alignment);
    frame_[frame.scope + variable.name] = program_.local_bytes;
    program_.local_bytes += variable.bytes;
    if (program_.local_bytes > most_local_bytes)
      throw Error(Kind::invalid_ptx, "kernel " + kernel_.name.substr(0, 150) +
                                         " has more than 512 KiB of local memory for each thread");
  };
  for (const VariableDeclaration& variable : frame.function->variables)
    if (variable.space == Space::local || variable.space == Space::parameter) place(variable);
  if (frame.function->is_entry) return;
  for (const auto* list : {&frame.function->results, &frame.function->parameters})
    for (const VariableDeclaration& variable : *list)
      if (variable.reg < 0 && !frame.bound.contains(variable.name)) place(variable);
}

// The statements of the function of the last frame.
void Lowering::body() {
  const Frame frame = frames_.back();
  place_variables(frame);
  for (const Statement& each : frame.function->body) {
    if (each.label.empty()) {
      lower(each);
    } else if (!labels_
                    .emplace(frame.scope + each.label,
                             static_cast<std::int32_t>(program_.code.size()))
                    .second) {
      statement_ = &each;
      invalid("the label " + each.label + " is there twice");
    }
    if (program_.code.size() > most_instructions)
      refuse("the kernel has too many instructions, with those of its calls");
  }
  if (frames_.size() > 1) {
    labels_[frame.scope + " end"] = static_cast<std::int32_t>(program_.code.size());
    return;
  }
  static const Statement end_of_kernel = [] {
    Statement statement;
    statement.opcode = "exit";
    return statement;
  }();
  statement_ = &end_of_kernel;
  emit(nullptr, {}).flow = Flow::exit;
}

void Lowering::lower(const Statement& each) {
  statement_ = &each;
  taken_.assign(each.modifiers.size(), false);
  const bool gives_carry = (each.opcode == "add" || each.opcode == "sub") && has("cc");
  const OpcodeLowering lower_this =
      find_opcode(gives_carry ? each.opcode + ".cc" : each.opcode, last_type());
  if (lower_this == nullptr) refuse();
  const std::size_t first = program_.code.size();
  lower_this(*this);
  statement_ = &each;
  file_.end_statement(program_, first);
  for (std::size_t k = 0; k < taken_.size(); ++k)
    if (!taken_[k]) refuse("." + each.modifiers[k] + " is not known there");
}

void Lowering::finish() {
  for (const Instruction& each : program_.code) {
    if (each.flow != Flow::plain || each.run != nullptr) continue;
    statement_ = each.statement;
    invalid("it does not exist for this type");
  }
  const std::vector<std::int32_t> places = file_.separate_steady(program_);
  for (const Fixup& fixup : fixups_) {
    const auto found = labels_.find(fixup.label);
    if (found == labels_.end())
      throw Error(Kind::invalid_ptx, "kernel " + kernel_.name + ", PTX line " +
                                         std::to_string(fixup.line) + ": there is no label " +
                                         fixup.label);
    const auto place = static_cast<std::size_t>(places[fixup.instruction]);
    program_.code[place].targets.push_back(places[static_cast<std::size_t>(found->second)]);
  }
  file_.allocate(program_);
  std::int32_t plain_count = 0;
  for (Instruction& each : std::views::reverse(program_.code))
    each.plain_count = plain_count = each.flow == Flow::plain ? plain_count + 1 : 0;
  program_.local_bytes = aligned(program_.local_bytes, 16);
}

Instruction& Lowering::emit(Handler handler, std::vector<Slot> slots) {
  Instruction& instruction = program_.code.emplace_back();
  instruction.run = handler;
  instruction.slots = std::move(slots);
  instruction.line = statement_->line;
  instruction.place = statement_->place;
  instruction.statement = statement_;
  if (statement_->guard >= 0) {
    if (function().registers.at(static_cast<std::size_t>(statement_->guard)) != Type::pred)
      invalid("a guard that is no predicate");
    instruction.guard = slot_of(statement_->guard);
    instruction.guard_negated = statement_->guard_negated;
  }
  return instruction;
}

void Lowering::branch_to_label(Instruction& instruction, const std::string& label) {
  const auto number = static_cast<std::size_t>(&instruction - program_.code.data());
  fixups_.push_back({number, frames_.back().scope + label, statement_->line});
}

void Lowering::leave_function() {
  if (frames_.size() == 1) {
    emit(nullptr, {}).flow = Flow::exit;
    return;
  }
  Instruction& instruction = emit(nullptr, {});
  instruction.flow = Flow::branch;
  branch_to_label(instruction, " end");
}

}  // namespace simulate_gpus::ptx
