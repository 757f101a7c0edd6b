// SPDX-License-Identifier: MIT
//
// torch.cat of few values, be they of many tensors: copied one behind the other. A view of each tensor for the CPU's kernel
// would take several times as long.
#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/compute.hpp"
#include "kernels/direct_result.hpp"
#include "kernels/own_kernels.hpp"

namespace simulate_gpus {
namespace {

using at::Tensor;
using Sizes = c10::SmallVector<std::int64_t, 3>;

// The result's sizes, if the tensors are alike but in the dimension, and their values lie in the order of their indices;
// else none. With four dimensions the result could be channels last.
Sizes joined_sizes(const at::ITensorListRef& tensors, std::int64_t dim) {
  constexpr std::array k_dtypes = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong};
  if (tensors.size() == 0) return {};
  const Tensor& first = *tensors.begin();
  if (!first.defined() || !first.is_cuda() || !is_strided(first) || first.is_conj() ||
      first.is_neg() || first.dim() > 3 || dim < 0 || dim >= first.dim() ||
      std::ranges::count(k_dtypes, first.scalar_type()) == 0)
    return {};
  const auto expected = first.sizes();
  const auto place = static_cast<std::size_t>(dim);
  Sizes joined(expected.begin(), expected.end());
  joined[place] = 0;
  for (const Tensor& x : tensors) {
    const auto sizes = x.sizes();
    if (x.key_set() != first.key_set() || x.device() != first.device() ||
        x.dtype() != first.dtype() || sizes.size() != expected.size() || !x.is_contiguous() ||
        has_names(x))
      return {};
    for (std::size_t d = 0; d < sizes.size(); ++d)
      if (d != place && sizes[d] != expected[d]) return {};
    joined[place] += sizes[place];
  }
  return joined;
}

Tensor join(const at::ITensorListRef& tensors, std::size_t dim, const Sizes& sizes) {
  const Tensor& first = *tensors.begin();
  const Tensor joined = empty_on_gpu(sizes, first.scalar_type());
  const auto product = [](auto begin, auto end) {
    return static_cast<std::size_t>(c10::multiply_integers(begin, end));
  };
  const std::size_t rows = product(sizes.begin(), sizes.begin() + dim),
                    item = product(sizes.begin() + dim + 1, sizes.end()) * first.itemsize();
  auto* to = static_cast<std::byte*>(host_address(joined.mutable_data_ptr()));
  for (std::size_t row = 0; row < rows; ++row) {
    for (const Tensor& x : tensors) {
      const std::size_t bytes = static_cast<std::size_t>(x.sizes()[dim]) * item;
      if (bytes == 0) continue;
      const auto* from = static_cast<const std::byte*>(host_address(x.const_data_ptr()));
      std::memcpy(to, from + row * bytes, bytes);
      to += bytes;
    }
  }
  return joined;
}

Tensor cat(const at::ITensorListRef& tensors, std::int64_t dim) {
  constexpr std::int64_t k_few = 1 << 14;
  static const Operation& operation = Operation::of("aten::cat");
  const std::int64_t place = dim < 0 && tensors.size() > 0 ? dim + (*tensors.begin()).dim() : dim;
  const Sizes sizes = joined_sizes(tensors, place);
  if (!sizes.empty() && c10::multiply_integers(sizes) <= k_few) {
    const auto made = direct_result(operation, (*tensors.begin()).device(), [&] {
      return join(tensors, static_cast<std::size_t>(place), sizes);
    });
    if (made) return *made;
  }
  torch::jit::Stack stack{tensors, dim};
  compute(operation, &stack);
  return stack[0].toTensor();
}

}  // namespace

void add_cat(torch::Library& library) { library.impl("cat", TORCH_FN(cat)); }

}  // namespace simulate_gpus
