// SPDX-License-Identifier: MIT
#include "core/copies/each_copy.hpp"

#include <ATen/ATen.h>

#include <cstring>
#include <map>

#include "core/copies/flat_buffers.hpp"

namespace use_gpu::detail {
namespace {

// LibTorch splits a copy on the CPU among threads that busy-wait for each other; on a busy machine
// this took ten times as long as one thread. Only a large copy is worth it.
constexpr std::size_t k_worth_threads = std::size_t{1} << 20;

// The widest integer that divides the size and the begin of both.
at::ScalarType common_integer(const at::Tensor& a, const at::Tensor& b) {
  auto divisible = a.nbytes() | static_cast<std::uintptr_t>(begin_of(a) | begin_of(b));
  for (const auto* x : {&a, &b}) divisible |= reinterpret_cast<std::uintptr_t>(x->const_data_ptr());
  return widest_integer(divisible);
}

}  // namespace

Step each_copy(at::TensorList values, at::TensorList targets) {
  // LibTorch's _foreach_copy_ runs a kernel for each pair if their dtypes differ.
  std::map<at::ScalarType, Pairs> on_device;
  Pairs on_host, one_by_one;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto& value = values[i];
    const auto& target = targets[i];
    if (!are_alike(value, target)) {
      one_by_one.add(value, target);
    } else if (value.const_data_ptr() == target.const_data_ptr()) {
      continue;  // itself, or empty
    } else if (!target.is_cpu()) {
      const auto width = common_integer(value, target);
      on_device[width].add(flat_view(value, width), flat_view(target, width));
    } else if (target.nbytes() < k_worth_threads) {
      on_host.add(value, target);
    } else {  // bytes need not be aligned
      one_by_one.add(flat_view(value, at::kByte), flat_view(target, at::kByte));
    }
  }
  return [on_device, on_host, one_by_one, all = targets.vec()] {
    for (const auto& [width, pairs] : on_device) at::_foreach_copy_(pairs.targets, pairs.values);
    for (std::size_t i = 0; i < on_host.targets.size(); ++i) {
      const auto& target = on_host.targets[i];
      std::memmove(target.mutable_data_ptr(), on_host.values[i].const_data_ptr(), target.nbytes());
    }
    // Autograd sees writes by copy_, but not these.
    for (const auto& x : all) x.unsafeGetTensorImpl()->bump_version();
    for (std::size_t i = 0; i < one_by_one.targets.size(); ++i)
      one_by_one.targets[i].copy_(one_by_one.values[i]);
  };
}

}  // namespace use_gpu::detail
