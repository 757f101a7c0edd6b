// Copies between registers, and special registers.
#pragma once

#include <string>

#include "ptx/execution/instruction.hpp"

namespace simulate_gpus::ptx {

Handler copy_handler(Type type);  // slots: d, a

// Between registers of 32 and of 64 bits. slots: d, a
void narrow_register(Warp& warp, const Instruction& instruction, Mask mask);
void widen_signed(Warp& warp, const Instruction& instruction, Mask mask);
void widen_unsigned(Warp& warp, const Instruction& instruction, Mask mask);

// %clock and %globaltimer (`negated`); mode 1: the upper half. slots: d
void read_clock(Warp& warp, const Instruction& instruction, Mask mask);
void read_wide_clock(Warp& warp, const Instruction& instruction, Mask mask);

bool is_known_special(const std::string& name);
std::uint64_t special_value(const Warp& warp, const std::string& name, int lane);

}  // namespace simulate_gpus::ptx
