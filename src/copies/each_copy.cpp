// SPDX-License-Identifier: MIT
#include "copies/each_copy.hpp"

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/cat.h>
#include <use_gpu/log.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "copies/memory_view.hpp"
#include "messages/error_text.hpp"

namespace use_gpu::detail {
namespace {

// In place, on the host. LibTorch splits a copy on the CPU among threads that busy-wait for each
// other; on a busy machine this took ten times as long as one thread.
void copy_memory(const at::Tensor& target, const at::Tensor& value) {
  std::memmove(target.mutable_data_ptr(), value.const_data_ptr(), target.nbytes());
}

// The widest integer that divides the size and the begin of both.
at::ScalarType widest_integer(const at::Tensor& a, const at::Tensor& b) {
  const auto begin = [](const at::Tensor& x) {
    return reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) |
           static_cast<std::uintptr_t>(begin_of(x));
  };
  const auto bits = a.nbytes() | begin(a) | begin(b);
  if (bits % 8 == 0) return at::kLong;
  if (bits % 4 == 0) return at::kInt;
  return bits % 2 == 0 ? at::kShort : at::kByte;
}

at::Tensor as_integers(const at::Tensor& x, at::ScalarType width, std::size_t bytes) {
  const auto count = static_cast<std::int64_t>(bytes / c10::elementSize(width));
  return memory_view(x, begin_of(x), width, {count}, {1});
}

// So that targets that follow each other are neighbours.
void sort_by_target(std::vector<at::Tensor>& values, std::vector<at::Tensor>& targets) {
  std::vector<std::size_t> order(targets.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::less<>()(targets[a].const_data_ptr(), targets[b].const_data_ptr());
  });
  for (auto* list : {&values, &targets}) {
    std::vector<at::Tensor> sorted;
    for (const auto i : order) sorted.push_back((*list)[i]);
    list->swap(sorted);
  }
}

bool follows(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl() &&
         begin_of(a) == begin_of(b) + static_cast<std::int64_t>(b.nbytes());
}

}  // namespace

EachCopy::EachCopy(at::TensorList values, at::TensorList targets) {
  std::map<at::ScalarType, Pairs> alike;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto& value = values[i];
    const auto& target = targets[i];
    if (target.numel() == 0) continue;
    if (!are_alike(value, target)) {
      one_by_one_.values.push_back(value);
      one_by_one_.targets.push_back(target);
      continue;
    }
    own_alike_.push_back(target);
    if (value.const_data_ptr() == target.const_data_ptr()) continue;
    const bool on_host = target.is_cpu();
    const auto width = on_host ? at::kByte : widest_integer(value, target);
    auto& pairs = alike[width];
    pairs.values.push_back(on_host ? value : as_integers(value, width, value.nbytes()));
    pairs.targets.push_back(on_host ? target : as_integers(target, width, target.nbytes()));
  }

  // LibTorch's _foreach_copy_ runs a kernel for each pair if their dtypes differ.
  for (auto& [width, pairs] : alike) {
    if (pairs.targets.front().is_cpu()) {
      alike_.push_back(std::move(pairs));
      continue;
    }
    sort_by_target(pairs.values, pairs.targets);
    const auto& [from, to] = pairs;
    Pairs scattered;
    for (std::size_t begin = 0; begin < to.size();) {
      auto end = begin + 1;
      auto bytes = to[begin].nbytes();
      for (; end < to.size() && follows(to[end], to[end - 1]); ++end) bytes += to[end].nbytes();
      if (end - begin > 1) {
        rows_.push_back({{from.begin() + static_cast<std::ptrdiff_t>(begin),
                          from.begin() + static_cast<std::ptrdiff_t>(end)},
                         as_integers(to[begin], width, bytes)});
      } else {
        scattered.values.push_back(from[begin]);
        scattered.targets.push_back(to[begin]);
      }
      begin = end;
    }
    if (!scattered.targets.empty()) alike_.push_back(std::move(scattered));
  }
}

void EachCopy::run() const {
  for (const auto& row : rows_) {
    auto target = row.target;
    at::cat_out(target, row.values);
  }
  for (const auto& [values, targets] : alike_) {
    if (!targets.front().is_cpu()) {
      at::_foreach_copy_(targets, values);
      continue;
    }
    for (std::size_t i = 0; i < targets.size(); ++i) copy_memory(targets[i], values[i]);
  }
  // Autograd sees writes by copy_, but not these.
  for (const auto& x : own_alike_) x.unsafeGetTensorImpl()->bump_version();
  for (std::size_t i = 0; i < one_by_one_.targets.size(); ++i)
    one_by_one_.targets[i].copy_(one_by_one_.values[i]);
}

void write_with_retry(c10::function_ref<void()> write) {
  try {
    write();
    return;
  } catch (const c10::Error& error) {
    log_message(LogLevel::warning,
                "A write to a device failed and is tried again: " + error_cause(error));
  }
  try {
    at::accelerator::emptyCache();
  } catch (const c10::Error&) {  // no accelerator, or one without a cache
  }
  write();
}

}  // namespace use_gpu::detail
