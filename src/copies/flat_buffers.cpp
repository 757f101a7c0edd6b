// SPDX-License-Identifier: MIT
#include "copies/flat_buffers.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "copies/each_copy.hpp"
#include "copies/memory_view.hpp"

namespace use_gpu::detail {
namespace {

constexpr std::int64_t k_bucket_bytes = std::int64_t{64} << 20;

}  // namespace

std::vector<Positions> buckets(at::TensorList tensors) {
  struct Filling {
    std::size_t bucket;
    std::int64_t bytes;
  };
  std::map<std::tuple<c10::DeviceType, c10::DeviceIndex, at::ScalarType>, Filling> filling;
  std::vector<Positions> all;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& x = tensors[i];
    const auto [found, is_new] = filling.try_emplace(
        {x.device().type(), x.device().index(), x.scalar_type()}, Filling{all.size(), 0});
    auto& [bucket, bytes] = found->second;
    if (is_new || bytes + bytes_in(x) > k_bucket_bytes) {
      bucket = all.size();
      bytes = 0;
      all.emplace_back();
    }
    all[bucket].push_back(i);
    bytes += bytes_in(x);
  }
  return all;
}

std::vector<at::Tensor> select(at::TensorList tensors, const Positions& positions) {
  std::vector<at::Tensor> selected;
  for (const auto i : positions) selected.push_back(tensors[i]);
  return selected;
}

// Sizes that 16 or 8 divides come first, without gaps: so EachCopy moves them as one row.
FlatLayout::FlatLayout(at::TensorList tensors) : begins(tensors.size()) {
  for (const std::int64_t divisor : {16, 8, 1}) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto size = bytes_in(tensors[i]);
      const int widest = size % 16 == 0 ? 16 : size % 8 == 0 ? 8 : 1;
      if (widest != divisor) continue;
      begins[i] = (bytes + 7) / 8 * 8;
      bytes = begins[i] + size;
    }
  }
}

at::Tensor flatten(at::TensorList tensors) {
  const auto& first = tensors.front();
  if (tensors.size() == 1 && first.is_contiguous() && is_dense_and_resolved(first))
    return first.detach().view({first.numel()});
  const auto bytes = FlatLayout(tensors).bytes;
  auto flat = at::empty({bytes / static_cast<std::int64_t>(first.element_size())}, first.options());
  EachCopy(tensors, unflatten(flat, tensors)).run();
  return flat;
}

std::vector<at::Tensor> unflatten(const at::Tensor& flat, at::TensorList like) {
  const FlatLayout layout(like);
  std::vector<at::Tensor> views;
  for (std::size_t i = 0; i < like.size(); ++i) {
    const auto begin = layout.begins[i] / static_cast<std::int64_t>(flat.element_size());
    views.push_back(flat.narrow(0, begin, like[i].numel()).view(like[i].sizes()));
  }
  return views;
}

}  // namespace use_gpu::detail
