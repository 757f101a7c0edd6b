// SPDX-License-Identifier: MIT
//
// Why there is no GPU. LibTorch returns 0 for a dozen different reasons and reports none of them;
// this queries LibTorch, CUDA and the driver, and explains the reason briefly:
//
//   std::cout << use_gpu::explain_gpus() << '\n';
//   // The driver sees 2 GPUs, but CUDA_VISIBLE_DEVICES="" shows this program none of them. ...
#pragma once

#include <use_gpu/export.hpp>

#include <string>

namespace USE_GPU_EXPORT use_gpu {

/// Explains the value of num_gpus(), with a remedy if it is 0 or a counted GPU does not work; at
/// most 400 characters, in one line. Does not throw if a GPU or driver is missing or fails, prints
/// nothing, and does not affect num_gpus() or try_gpu().
///
/// To be certain, it runs one small operation on every visible GPU. On a GPU that the program has
/// not used yet, this creates a context, which can take seconds, and uses some hundred MiB of GPU
/// memory until the program ends. Without a GPU it takes milliseconds.
///
/// Waits: for that operation.
///
/// Threads: several may call it at once.
///
/// Chapter: `num_gpus()`.
[[nodiscard]] std::string explain_gpus();

}  // namespace use_gpu
