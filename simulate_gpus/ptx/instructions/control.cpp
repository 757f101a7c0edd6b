// bra, brx.idx, call, ret, exit, trap, brkpt; nanosleep, griddepcontrol.
#include "ptx/execution/memory.hpp"
#include "ptx/instructions/copies.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

void trap(Warp&, const Instruction& instruction, Mask mask) {
  throw LaneFault{Kind::launch_failure,
                  "the kernel ends itself by " + instruction.statement->opcode,
                  std::countr_zero(mask)};
}

void lower_branch(Lowering& lowering) {
  lowering.take("uni");
  lowering.expect_operands(1, 1);
  const Operand& label = lowering.operand(0);
  if (label.kind != Operand::Kind::symbol) lowering.refuse("a branch by a pointer");
  Instruction& instruction = lowering.emit(nullptr, {});
  instruction.flow = Flow::branch;
  lowering.branch_to_label(instruction, label.name);
}

// An index that is too large is not defined; here it is the last one.
void lower_indexed_branch(Lowering& lowering) {
  if (!lowering.take("idx")) lowering.invalid("it needs .idx");
  lowering.take("uni");
  lowering.expect_operands(2, 2);
  const auto& lists = lowering.function().branch_targets;
  const auto targets = lists.find(lowering.operand(1).name);
  if (targets == lists.end()) lowering.invalid("its list of labels is missing");
  Instruction& instruction = lowering.emit(nullptr, {lowering.source(0, Type::u32)});
  instruction.flow = Flow::indexed_branch;
  for (const std::string& label : targets->second) lowering.branch_to_label(instruction, label);
}

void lower_call(Lowering& lowering) { lowering.call(); }

void lower_return(Lowering& lowering) {
  lowering.take("uni");
  lowering.expect_operands(0, 0);
  lowering.leave_function();
}

void lower_exit(Lowering& lowering) {
  lowering.expect_operands(0, 0);
  lowering.emit(nullptr, {}).flow = Flow::exit;
}

void lower_trap(Lowering& lowering) { lowering.emit(trap, {}); }

void lower_pause(Lowering& lowering) {
  lowering.take("u32");
  lowering.emit(do_nothing, {}).flow = Flow::pause;
}

// The grid before has ended, and the next one begins when this one has.
void lower_grid_dependency(Lowering& lowering) {
  if (!lowering.take("wait") && !lowering.take("launch_dependents")) lowering.refuse();
  lowering.emit(do_nothing, {});
}

constexpr Opcode control_table[] = {
    {"bra", TypeKind::any, lower_branch},
    {"brx", TypeKind::any, lower_indexed_branch},
    {"call", TypeKind::any, lower_call},
    {"ret", TypeKind::any, lower_return},
    {"exit", TypeKind::any, lower_exit},
    {"trap", TypeKind::any, lower_trap},
    {"brkpt", TypeKind::any, lower_trap},
    {"nanosleep", TypeKind::any, lower_pause},
    {"griddepcontrol", TypeKind::any, lower_grid_dependency},
};

}  // namespace

std::span<const Opcode> control_opcodes() { return control_table; }

}  // namespace simulate_gpus::ptx
