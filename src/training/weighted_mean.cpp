// SPDX-License-Identifier: MIT
#include "training/weighted_mean.hpp"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "core/copies/flat_buffers.hpp"

namespace use_gpu::detail {
namespace {

using Tensors = std::vector<at::Tensor>;
using Weights = std::vector<std::int64_t>;

// The sum of the tensors, which are on several devices, each times its weight, on this one.
at::Tensor sum_on(c10::Device device, const Tensors& tensors, const Weights& weights) {
  at::Tensor sum;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (weights[i] == 0) continue;  // not even 0 times: nan would remain
    const auto x = tensors[i].to(device);
    if (sum.defined()) {
      sum = sum.add(x, /*alpha=*/weights[i]);
    } else {
      sum = x.to(at::toOpMathType(x.scalar_type()));
      if (weights[i] != 1) sum = sum.mul(weights[i]);
    }
  }
  return sum;
}

// Sums the tensors in a bucket of all lists, which changes nothing; adds what is then to be written
// into each. More than two devices reduce all at once, an equal part each.
void sum_bucket(const std::vector<Tensors>& lists, const Weights& weights, const Positions& bucket,
                std::vector<Step>& writes) {
  Tensors flat;
  std::vector<Step> copies;
  bool is_copied = true;
  for (const auto& tensors : lists) {
    const auto targets = select(tensors, bucket);
    flat.push_back(flatten(targets));
    copies.push_back(each_copy(at::unflatten_dense_tensors(flat.back(), targets), targets));
    is_copied = is_copied && !flat.back().is_alias_of(targets.front());
  }
  const auto numel = flat.front().numel();
  const auto count = static_cast<std::int64_t>(lists.size());
  const auto parts = count > 2 ? count : 1;
  const auto total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto size = (numel / parts / 16 + 1) * 16;  // aligned
  for (std::int64_t begin = 0; begin < numel; begin += size) {
    Tensors part;
    for (const auto& x : flat) part.push_back(x.narrow(0, begin, std::min(size, numel - begin)));
    auto mean = part[static_cast<std::size_t>(begin / size)];
    const auto sum = sum_on(mean.device(), part, weights);
    const auto divisor = at::native::wrapped_scalar_tensor(total);
    const Step divide = [mean, part, sum, divisor]() mutable {
      at::div_out(mean, sum, divisor);
      for (const auto& x : part) {
        if (!x.is_same(mean)) x.copy_(mean);
      }
    };
    is_copied ? divide() : writes.push_back(divide);  // into copies at once
  }
  std::ranges::move(copies, std::back_inserter(writes));
}

}  // namespace

std::vector<Step> weighted_mean(const std::vector<Tensors>& lists, const Weights& weights) {
  std::vector<Step> writes;
  for (const auto& bucket : buckets(lists.front())) sum_bucket(lists, weights, bucket, writes);
  return writes;
}

}  // namespace use_gpu::detail
