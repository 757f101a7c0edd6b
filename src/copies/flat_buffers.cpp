// SPDX-License-Identifier: MIT
#include "copies/flat_buffers.hpp"

#include <ATen/ops/cat.h>

#include <map>
#include <tuple>

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

// As integers: LibTorch does not concatenate every dtype.
at::Tensor flatten(at::TensorList tensors) {
  const auto integer = widest_integer(tensors.front().dtype().itemsize());
  std::vector<at::Tensor> parts;
  for (const auto& x : tensors)
    parts.push_back(flat_view(x.contiguous().resolve_conj().resolve_neg(), integer));
  const auto flat = parts.size() == 1 ? parts.front() : at::cat(parts);
  return flat_view(flat, tensors.front().scalar_type());
}

std::vector<at::Tensor> unflatten(const at::Tensor& flat, at::TensorList like) {
  std::vector<at::Tensor> views;
  std::int64_t begin = 0;
  for (const auto& x : like) {
    views.push_back(flat.narrow(0, begin, x.numel()).view(x.sizes()));
    begin += x.numel();
  }
  return views;
}

}  // namespace use_gpu::detail
