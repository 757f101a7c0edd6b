// Conversions that are exact, or that the host rounds as a card does: those that programs use most.
#pragma once

#include "ptx/execution/instruction.hpp"

namespace simulate_gpus::ptx {

class Lowering;

// cvt.pack
void lower_packing_conversion(Lowering& lowering);

// Null, if there is none for these types and rules.
Handler fast_conversion(Type to, Type from, const Rules& rules, bool is_finite);

}  // namespace simulate_gpus::ptx
