// SPDX-License-Identifier: MIT
#include "copies/each_copy.hpp"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <utility>

#include "copies/memory_view.hpp"

namespace use_gpu::detail {
namespace {

// LibTorch splits a copy on the CPU among threads that busy-wait for each other; on a busy machine
// this took ten times as long as one thread. Only a large copy is worth it.
constexpr std::size_t k_worth_threads = std::size_t{1} << 20;

struct Pair {
  at::Tensor value, target;
};

// The widest integer that divides the size and the begin of both.
at::ScalarType common_integer(const at::Tensor& a, const at::Tensor& b) {
  const auto begin = [](const at::Tensor& x) {
    return reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) |
           static_cast<std::uintptr_t>(begin_of(x));
  };
  return widest_integer(a.nbytes() | begin(a) | begin(b));
}

// Whether b's target begins where a's ends.
bool are_neighbours(const Pair& a, const Pair& b) {
  return a.target.storage().unsafeGetStorageImpl() == b.target.storage().unsafeGetStorageImpl() &&
         begin_of(b.target) == begin_of(a.target) + bytes_in(a.target);
}

}  // namespace

void Pairs::add(const at::Tensor& value, const at::Tensor& target) {
  values.push_back(value);
  targets.push_back(target);
}

EachCopy::EachCopy(at::TensorList values, at::TensorList targets) {
  // LibTorch's _foreach_copy_ runs a kernel for each pair if their dtypes differ.
  std::map<at::ScalarType, std::vector<Pair>> on_device;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto& value = values[i];
    const auto& target = targets[i];
    if (target.numel() == 0) continue;
    if (!are_alike(value, target)) {
      one_by_one_.add(value, target);
      continue;
    }
    alike_.push_back(target);
    if (value.const_data_ptr() == target.const_data_ptr()) continue;
    if (!target.is_cpu()) {
      const auto width = common_integer(value, target);
      on_device[width].push_back({flat_view(value, width), flat_view(target, width)});
    } else if (target.nbytes() < k_worth_threads) {
      on_host_.add(value, target);
    } else {  // bytes need not be aligned
      one_by_one_.add(flat_view(value, at::kByte), flat_view(target, at::kByte));
    }
  }
  for (auto& [width, pairs] : on_device) {
    for (auto begin = pairs.begin(), end = begin; begin != pairs.end(); begin = end) {
      end = std::adjacent_find(begin, pairs.end(), std::not_fn(are_neighbours));
      if (end != pairs.end()) ++end;
      if (end - begin == 1) {
        scattered_[width].add(begin->value, begin->target);
        continue;
      }
      Row row;
      std::int64_t size = 0;
      for (auto pair = begin; pair != end; ++pair) {
        row.values.push_back(pair->value);
        size += pair->value.numel();
      }
      row.target = memory_view(begin->target, begin_of(begin->target), width, {size}, {1});
      rows_.push_back(std::move(row));
    }
  }
}

void EachCopy::run() const {
  for (const auto& row : rows_) {
    auto target = row.target;
    at::cat_out(target, row.values);
  }
  for (const auto& [width, pairs] : scattered_) at::_foreach_copy_(pairs.targets, pairs.values);
  for (std::size_t i = 0; i < on_host_.targets.size(); ++i) {
    const auto& target = on_host_.targets[i];
    std::memmove(target.mutable_data_ptr(), on_host_.values[i].const_data_ptr(), target.nbytes());
  }
  // Autograd sees writes by copy_, but not these.
  for (const auto& x : alike_) x.unsafeGetTensorImpl()->bump_version();
  for (std::size_t i = 0; i < one_by_one_.targets.size(); ++i)
    one_by_one_.targets[i].copy_(one_by_one_.values[i]);
}

}  // namespace use_gpu::detail
