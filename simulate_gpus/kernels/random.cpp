// SPDX-License-Identifier: MIT
#include "kernels/random.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/PhiloxCudaState.h>

#include <cstdint>
#include <mutex>

#include "runtime/interface.hpp"

namespace simulate_gpus {
namespace {

constexpr std::uint64_t k_golden = 0x9E3779B97F4A7C15;

// SplitMix64: neighbouring numbers in, unrelated ones out.
std::uint64_t mixed(std::uint64_t x) {
  x += k_golden;
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

// The generator's state before it advances.
at::PhiloxCudaState advance(const std::optional<at::Generator>& generator, c10::Device device,
                            std::uint64_t numbers) {
  auto* const cuda = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      generator, at::cuda::detail::getDefaultCUDAGenerator(device.index()));
  const std::scoped_lock lock(cuda->mutex_);
  return cuda->philox_cuda_state(numbers);
}

}  // namespace

std::function<at::Generator()> take_turn(const std::optional<at::Generator>& generator,
                                         c10::Device device) {
  constexpr std::uint64_t k_step = 4;  // the generator's smallest step
  return [state = advance(generator, device, k_step)] { return make_generator(state); };
}

std::pair<at::Tensor, at::Tensor> take_state(c10::Device device, std::uint64_t numbers) {
  const at::PhiloxCudaState state = advance(std::nullopt, device, numbers);
  if (!state.captured_) {
    const auto scalar = [](std::uint64_t x) {
      return at::scalar_tensor(static_cast<std::int64_t>(x), at::kLong);
    };
    return {scalar(state.seed_.val), scalar(state.offset_.val)};
  }
  const auto scalar = [&](std::int64_t* address) {
    return at::from_blob(address, {}, at::TensorOptions(device).dtype(at::kLong));
  };
  return {scalar(state.seed_.ptr).clone(),
          scalar(state.offset_.ptr) + static_cast<std::int64_t>(state.offset_intragraph_)};
}

NumberedRandom::NumberedRandom(std::int64_t seed, std::int64_t offset)
    : key_(mixed(static_cast<std::uint64_t>(seed) ^ mixed(static_cast<std::uint64_t>(offset)))) {}

void NumberedRandom::write(std::int64_t first, std::int64_t count, float* to) const {
  std::uint64_t counter = key_ + static_cast<std::uint64_t>(first) * k_golden;
  for (std::int64_t i = 0; i < count; ++i, counter += k_golden) {
    to[i] = static_cast<float>((mixed(counter) >> 40) + 1) * 0x1p-24F;
  }
}

}  // namespace simulate_gpus
