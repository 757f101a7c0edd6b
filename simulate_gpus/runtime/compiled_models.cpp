// SPDX-License-Identifier: MIT
//
// A model that AOTInductor compiled calls LibTorch's operations by a C function each, aoti_torch_cuda_mm_out say. In LibTorch
// that calls the CUDA kernel, and no dispatcher where another could stand. So these, which are preloaded, are found first. Each
// jumps, with all its arguments, to what the kernels have put into the table (kernels/compiled_models.cpp).
#include <array>
#include <iterator>
#include <span>

#include "runtime/interface.hpp"

namespace {

// AOTI_TORCH_FAILURE: a program without simulated GPUs has no kernels.
int fails() { return 1; }

constexpr const char* k_names[] = {
#define SIMULATE_GPUS_OPERATION(index, name) #name,
#include "compiled_models.inc"
#undef SIMULATE_GPUS_OPERATION
};
using Table = std::array<void*, std::size(k_names)>;  // nothing else asks for the names

Table all_fail() {
  Table table;
  table.fill(reinterpret_cast<void*>(&fails));
  return table;
}

}  // namespace

extern "C" [[gnu::visibility("hidden")]] Table simulate_gpus_compiled_calls;
Table simulate_gpus_compiled_calls = all_fail();

#define SIMULATE_GPUS_OPERATION(index, name)                                   \
  asm(".pushsection .text\n"                                                   \
      ".globl aoti_torch_cuda_" #name                                          \
      "\n"                                                                     \
      ".type aoti_torch_cuda_" #name                                           \
      ", @function\n"                                                          \
      "aoti_torch_cuda_" #name ": jmp *simulate_gpus_compiled_calls+8*" #index \
      "(%rip)\n"                                                               \
      ".popsection");
#include "compiled_models.inc"

std::span<void*> simulate_gpus::compiled_calls() { return simulate_gpus_compiled_calls; }
