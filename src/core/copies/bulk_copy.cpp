// SPDX-License-Identifier: MIT
#include "core/copies/bulk_copy.hpp"

#include <ATen/ATen.h>
#include <use_gpu/device.hpp>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "core/copies/each_copy.hpp"
#include "core/copies/flat_buffers.hpp"

namespace use_gpu::detail {
namespace {

constexpr std::int64_t k_parcel_bytes = std::int64_t{32} << 20;
// From this size on a tensor travels alone: at 50 GB/s for 20 us, longer than a call takes.
constexpr std::int64_t k_large_bytes = std::int64_t{1} << 20;
// So many small tensors need fewer calls together than one by one, whatever their sizes: between
// two devices each is one call, between host and device also a wait.
constexpr std::size_t k_worth_a_parcel = 4;
constexpr std::size_t k_worth_a_peer_parcel = 10;

// What is sent at once, as bytes: its values lie one after the other.
struct Parcel {
  Pairs pairs = {};
  std::int64_t bytes = 0;

  void add(const at::Tensor& value, const at::Tensor& target) {
    pairs.add(value, target);
    bytes += bytes_in(target);
  }

  // Views of that memory where the targets' values lie in it.
  [[nodiscard]] std::vector<at::Tensor> places_in(const at::Tensor& memory) const {
    std::vector<at::Tensor> places;
    auto begin = begin_of(memory);
    for (const auto& x : pairs.targets) {
      places.push_back(memory_view(memory, begin, x.scalar_type(), x.sizes(), x.strides()));
      begin += bytes_in(x);
    }
    return places;
  }
};

// Small tensors, as many together as fit. Sizes that 16 divides come first, then 8, and so on: so
// each begins at a multiple of its dtype's size.
std::vector<Parcel> parcels_of(const Pairs& small) {
  std::vector<Parcel> parcels(1);
  for (const std::int64_t divisor : {16, 8, 4, 2, 1}) {
    for (std::size_t i = 0; i < small.targets.size(); ++i) {
      const auto size = bytes_in(small.targets[i]);
      if (std::gcd(size, 16) != divisor) continue;
      if (parcels.back().bytes + size > k_parcel_bytes) parcels.emplace_back();
      parcels.back().add(small.values[i], small.targets[i]);
    }
  }
  return parcels;
}

// Memory for so many bytes of what travels between this device and the other one. On the host it is
// pinned for CUDA, which copies from there several times faster.
at::Tensor memory_on(c10::Device device, c10::Device other, std::int64_t bytes) {
  const bool pinned = device.is_cpu() && other.is_cuda();
  return at::empty({bytes}, at::TensorOptions(at::kByte).device(device).pinned_memory(pinned));
}

// Writes what a device holds into that memory of it, one after the other: 128 by one kernel.
Step pack(at::TensorList values, at::Tensor memory) {
  std::vector<at::Tensor> parts;
  for (const auto& x : values) parts.push_back(flat_view(x, at::kByte));
  return [parts, memory]() mutable { at::cat_out(memory, parts); };
}

// Sends the parcels from one device to another, one after the other: each is packed, copied and
// unpacked, all through the same memory.
void add_parcel_steps(const std::vector<Parcel>& parcels, c10::Device from, c10::Device to,
                      std::vector<Step>& steps) {
  const auto bytes = std::ranges::max(parcels, {}, &Parcel::bytes).bytes;
  const auto memory_from = memory_on(from, to, bytes), memory_to = memory_on(to, from, bytes);
  for (const auto& parcel : parcels) {
    const auto packed = memory_from.narrow(0, 0, parcel.bytes);
    const auto unpacked = memory_to.narrow(0, 0, parcel.bytes);
    const auto& values = parcel.pairs.values;
    steps.push_back(from.is_cpu() ? each_copy(values, parcel.places_in(packed))
                                  : pack(values, packed));
    steps.emplace_back([=] { unpacked.copy_(packed); });
    steps.push_back(each_copy(parcel.places_in(unpacked), parcel.pairs.targets));
  }
}

// Allocates all memory that the steps need.
std::vector<Step> make_plan(at::TensorList values, at::TensorList targets) {
  // Small tensors, or all within one device.
  std::unordered_map<c10::Device, std::unordered_map<c10::Device, Pairs>> routes;
  std::vector<Step> steps;
  // LibTorch's copy_ would convert in memory of its own.
  const auto add_alone = [&](const at::Tensor& value, const at::Tensor& target) {
    steps.emplace_back([target, same = value.to(target.scalar_type())] { target.copy_(same); });
  };
  Pairs beside;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    auto value = values[i];
    auto target = targets[i];
    if (target.numel() == 0) continue;
    auto& together = routes[value.device()][target.device()];
    if (value.device() == target.device()) {
      together.add(value, target);
      continue;
    }
    // Only memory travels, so the value must lie in it as its target does. On the host it may keep
    // another dtype: it is converted as it is packed. A target with gaps is written at last, from
    // memory beside it.
    if (!is_dense_and_resolved(target)) {
      beside.add(at::empty(target.sizes(), target.options()), target);
      target = beside.values.back();
    }
    if (value.is_cpu() ? !have_same_order(value, target) : !are_alike(value, target)) {
      const auto copy = at::empty_like(target, target.options().device(value.device()));
      value = copy.copy_(value);
    }
    bytes_in(target) < k_large_bytes ? together.add(value, target) : add_alone(value, target);
  }
  for (const auto& [from, by_target] : routes) {
    for (const auto& [to, together] : by_target) {
      const auto& [small, of_small] = together;
      const bool has_host = from.is_cpu() || to.is_cpu();
      if (from == to) {
        steps.push_back(each_copy(small, of_small));
      } else if (small.size() >= (has_host ? k_worth_a_parcel : k_worth_a_peer_parcel)) {
        add_parcel_steps(parcels_of(together), from, to, steps);
      } else {
        for (std::size_t i = 0; i < small.size(); ++i) add_alone(small[i], of_small[i]);
      }
    }
  }
  steps.push_back(each_copy(beside.values, beside.targets));
  return steps;
}

}  // namespace

void bulk_copy(at::TensorList values, at::TensorList targets) {
  const c10::InferenceMode inference;  // in which tensors that were made in it can be written too
  const auto steps = make_plan(values, targets);
  try {
    for (const auto& step : steps) step();
  } catch (...) {  // what is under way still uses the host's memory, which is given back now
    for (const auto tensors : {values, targets}) {
      for (const auto& x : tensors) {
        try {
          synchronize(x.device());
        } catch (...) {  // the device is lost: it uses nothing any more
        }
      }
    }
    throw;
  }
}

}  // namespace use_gpu::detail
