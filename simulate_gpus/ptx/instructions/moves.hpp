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

SpecialFunction find_special(const std::string& name);  // null, if there is none
bool is_of_block(const std::string& name);  // whether a special register differs by block

}  // namespace simulate_gpus::ptx
