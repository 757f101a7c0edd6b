// Modifiers that accesses to memory share.
#pragma once

#include "ptx/execution/instruction.hpp"

namespace simulate_gpus::ptx {

class Lowering;

// The space that a modifier names; generic, if none does.
Space take_space(Lowering& lowering);
// Order and scope (.relaxed.gpu and such): accesses of all lanes are as ordered as the strongest asks. Also what caches
// are told, which has no effect here; whether an operand with a cache policy follows.
bool take_order_and_caching(Lowering& lowering);

}  // namespace simulate_gpus::ptx
