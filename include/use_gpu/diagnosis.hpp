// SPDX-License-Identifier: MIT
//
// Why there is no GPU. LibTorch answers 0 for a dozen different reasons and names none of them;
// this asks everyone who knows (LibTorch, CUDA, the driver) and says in a few lines which it is:
//
//   std::cout << use_gpu::explain_gpus() << '\n';
//   // The driver sees 2 GPUs, but CUDA_VISIBLE_DEVICES="" shows this program none of them. ...
#pragma once

#include <use_gpu/export.hpp>

#include <string>

namespace USE_GPU_EXPORT use_gpu {

/// Why num_gpus() is what it is, and the remedy when it is 0 or a GPU that it counts does not work;
/// at most 400 characters, in one line. Never throws for a GPU or a driver that is missing or failing,
/// prints nothing, and changes no answer of num_gpus() or try_gpu().
///
/// To be certain it runs one small operation on every GPU that this program sees and waits for it.
/// Where the program has not yet used them, that creates a context on each, which takes up to
/// seconds and holds some hundred MiB of its memory until the program ends. Milliseconds where
/// there is no GPU. Thread-safe.
[[nodiscard]] std::string explain_gpus();

}  // namespace use_gpu
