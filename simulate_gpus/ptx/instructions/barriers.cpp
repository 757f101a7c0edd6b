// bar, barrier, bar.warp.sync, membar, fence. The scheduler does the waiting; see execution/.
#include <atomic>

#include "ptx/execution/warp.hpp"
#include "ptx/instructions/barriers.hpp"
#include "ptx/instructions/copies.hpp"
#include "ptx/lowering/lowering.hpp"
#include "ptx/lowering/opcodes.hpp"

namespace simulate_gpus::ptx {
namespace {

void fence(Warp& warp, const Instruction&, Mask) {
  ++warp.steps;
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// Its flow's slots: the barrier, the number of threads or none, the result or none, the predicate or none.
void lower_barrier(Lowering& lowering) {
  if (lowering.take("warp")) {
    if (!lowering.take("sync")) lowering.refuse();
    lowering.emit(do_nothing, {lowering.source(0, Type::b32)}).flow = Flow::meet;
    return;
  }
  if (lowering.has("cluster")) lowering.refuse("clusters of blocks do not exist");
  lowering.take("cta");
  const std::string_view what = lowering.take_one_of({"sync", "arrive", "red"});
  lowering.take("aligned");
  if (what.empty()) lowering.refuse();
  std::vector<Slot> slots = {no_slot, no_slot, no_slot, no_slot};
  std::uint8_t mode = what == "arrive" ? barrier_arrive : barrier_sync;
  std::size_t first = 0, last = lowering.operand_count();
  bool is_negated = false;
  if (what == "red") {
    const std::string_view operation = lowering.take_one_of({"popc", "and", "or"});
    mode = operation == "popc" ? barrier_popc : operation == "and" ? barrier_and : barrier_or;
    const Type type = lowering.take_type();
    lowering.expect_operands(3, 4);
    slots[2] = lowering.target(0, mode == barrier_popc ? Type::u32 : Type::pred);
    if ((mode == barrier_popc) != (type != Type::pred))
      lowering.invalid("a result of another type");
    slots[3] = lowering.predicate(lowering.operand(last - 1));
    is_negated = lowering.operand(last - 1).negated;
    first = 1;
    --last;
  } else {
    lowering.expect_operands(1, 2);
    if (what == "arrive" && last != 2) lowering.invalid("the number of threads is missing");
  }
  slots[0] = lowering.source(first, Type::u32);
  if (last > first + 1) slots[1] = lowering.source(first + 1, Type::u32);
  Instruction& instruction = lowering.emit(nullptr, std::move(slots));
  instruction.flow = Flow::barrier;
  instruction.mode = mode;
  instruction.negated = is_negated;
}

void lower_fence(Lowering& lowering) {
  lowering.ignore(
      {"sc", "acq_rel", "acquire", "release", "cta", "cluster", "gpu", "gl", "sys", "level"});
  if (lowering.take("proxy"))
    lowering.ignore(
        {"alias", "async", "global", "shared", "shared::cta", "generic", "async::generic"});
  lowering.take("mbarrier_init");
  lowering.emit(fence, {});
}

constexpr Opcode barrier_table[] = {
    {"bar", TypeKind::any, lower_barrier},
    {"barrier", TypeKind::any, lower_barrier},
    {"membar", TypeKind::any, lower_fence},
    {"fence", TypeKind::any, lower_fence},
};

}  // namespace

std::span<const Opcode> barrier_opcodes() { return barrier_table; }

}  // namespace simulate_gpus::ptx
