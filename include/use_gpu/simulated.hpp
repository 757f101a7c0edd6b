// SPDX-License-Identifier: MIT
//
// GPUs for machines that have none. Each simulated GPU is a LibTorch device of its own ("sim:0",
// "sim:1" ...) whose memory is the host's: tensors on different ones do not mix, transfers are
// transfers, and a program that runs on two of them has the logic to run on two real ones. Opt-in,
// by linking use_gpu::simulated (target_link_libraries(app use_gpu::use_gpu use_gpu::simulated)):
//
//   USE_GPU_SIMULATED_GPUS=2 ./app           # without changing the program
//   use_gpu::simulate_gpus(2);               // or from within, first thing in main()
//
// What runs on them is computed by the CPU, so timings say nothing. While they are there, they are
// "the GPUs", also on a machine that has real ones.
#pragma once

namespace use_gpu {

/// Makes `count` (1..16) simulated GPUs, once per process and before the first backward pass, when
/// LibTorch fixes its number of devices. ArgumentError outside 1..16 or if there are some already.
/// USE_GPU_SIMULATED_GPUS in the environment does the same before main(), and ends the program with
/// status 2 if its value is not such a number.
void simulate_gpus(int count);

}  // namespace use_gpu
