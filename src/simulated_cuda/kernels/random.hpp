// SPDX-License-Identifier: MIT
//
// Random numbers of a simulated GPU. LibTorch's CUDA generator counts: each operation takes a seed
// and an offset from it, and here these seed a CPU generator of the operation's own. So equal seeds
// give equal numbers, states can be saved, a graph draws new numbers at each replay, and the CPU's
// own generator is left alone. The numbers are not those of a real GPU.
#pragma once

#include <ATen/core/Generator.h>

#include <functional>
#include <optional>

namespace use_gpu::simulated_cuda {

/// Takes a turn from the generator, or from the device's own: what makes the operation's CPU
/// generator, at each replay anew if it is captured.
std::function<at::Generator()> take_turn(const std::optional<at::Generator>& generator,
                                         c10::Device device);

}  // namespace use_gpu::simulated_cuda
