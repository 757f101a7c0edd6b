// SPDX-License-Identifier: MIT
//
// Random numbers of a simulated GPU. LibTorch's CUDA generator is a counter: each operation takes a
// seed and an offset from it, which here seed the operation's own CPU generator. So equal seeds
// give equal numbers, states can be saved, a graph draws new numbers at each replay, and the CPU's
// own generator is left alone. The numbers are not those of a real GPU.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

namespace simulate_gpus {

/// Advances the generator, or the device's own. Returns what makes the operation's CPU generator,
/// again at each replay of a graph.
std::function<at::Generator()> take_turn(const std::optional<at::Generator>& generator,
                                         c10::Device device);

/// Advances the device's generator by so many numbers. Returns the seed and the offset that it had:
/// on the host, or on the device in a capture, where each replay of the graph finds its own.
std::pair<at::Tensor, at::Tensor> take_state(c10::Device device, std::uint64_t numbers);

/// The numbers that dropout in fused attention compares with its probability: any of them, as often
/// as it is needed, by its place.
class NumberedRandom {
 public:
  NumberedRandom(std::int64_t seed, std::int64_t offset);

  /// Writes the numbers of the places from `first` on, in (0, 1].
  void write(std::int64_t first, std::int64_t count, float* to) const;

 private:
  std::uint64_t key_;
};

}  // namespace simulate_gpus
