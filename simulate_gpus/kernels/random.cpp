// SPDX-License-Identifier: MIT
#include "kernels/random.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/PhiloxCudaState.h>

#include <cstdint>
#include <mutex>

#include "runtime/interface.hpp"

namespace simulate_gpus {
namespace {

// SplitMix64: neighbouring numbers in, unrelated ones out.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

std::uint64_t on_device(const std::int64_t* address) {
  return static_cast<std::uint64_t>(*static_cast<const std::int64_t*>(host_address(address)));
}

at::Generator make_generator(const at::PhiloxCudaState& state) {
  const std::uint64_t seed = state.captured_ ? on_device(state.seed_.ptr) : state.seed_.val;
  const std::uint64_t offset =
      state.captured_ ? on_device(state.offset_.ptr) + state.offset_intragraph_ : state.offset_.val;
  return at::make_generator<at::CPUGeneratorImpl>(mixed(seed ^ mixed(offset)));
}

}  // namespace

std::function<at::Generator()> take_turn(const std::optional<at::Generator>& generator,
                                         c10::Device device) {
  auto* const cuda = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      generator, at::cuda::detail::getDefaultCUDAGenerator(device.index()));
  constexpr std::uint64_t k_step = 4;  // the generator's smallest step
  const std::scoped_lock lock(cuda->mutex_);
  return [state = cuda->philox_cuda_state(k_step)] { return make_generator(state); };
}

}  // namespace simulate_gpus
