// SPDX-License-Identifier: MIT
//
// Random numbers of a simulated GPU. LibTorch's CUDA generator is a counter: each operation takes a
// seed and an offset from it, which here seed the operation's own CPU generator. So equal seeds
// give equal numbers, states can be saved, a graph draws new numbers at each replay, and the CPU's
// own generator is left alone. The numbers are not those of a real GPU.
#pragma once

#include <ATen/core/Generator.h>

#include <functional>
#include <optional>

namespace simulate_gpus {

/// Advances the generator, or the device's own. Returns what makes the operation's CPU generator,
/// again at each replay of a graph.
std::function<at::Generator()> take_turn(const std::optional<at::Generator>& generator,
                                         c10::Device device);

}  // namespace simulate_gpus
