// SPDX-License-Identifier: MIT
#include "core/copies/flat_buffers.hpp"

#include <ATen/ops/cat.h>

#include <map>
#include <unordered_map>

namespace use_gpu::detail {

at::Tensor memory_view(const at::Tensor& x, std::int64_t begin, at::ScalarType dtype,
                       at::IntArrayRef sizes, at::IntArrayRef strides) {
  auto view = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(x.storage()), c10::DispatchKeySet(x.options().computeDispatchKey()),
      c10::scalarTypeToTypeMeta(dtype));
  view.unsafeGetTensorImpl()->set_sizes_and_strides(
      sizes, strides, begin / static_cast<std::int64_t>(c10::elementSize(dtype)));
  return view;
}

at::Tensor flat_view(const at::Tensor& x, at::ScalarType dtype) {
  const auto count = bytes_in(x) / static_cast<std::int64_t>(c10::elementSize(dtype));
  return memory_view(x, begin_of(x), dtype, {count}, {1});
}

at::ScalarType widest_integer(std::uintptr_t bytes) {
  if (bytes % 8 == 0) return at::kLong;
  if (bytes % 4 == 0) return at::kInt;
  return bytes % 2 == 0 ? at::kShort : at::kByte;
}

std::int64_t begin_of(const at::Tensor& x) {
  return x.storage_offset() * static_cast<std::int64_t>(x.element_size());
}

std::int64_t bytes_in(const at::Tensor& x) { return static_cast<std::int64_t>(x.nbytes()); }

bool is_dense_and_resolved(const at::Tensor& x) {
  return x.is_non_overlapping_and_dense() && !x.is_conj() && !x.is_neg();
}

bool have_same_order(const at::Tensor& a, const at::Tensor& b) {
  if (!is_dense_and_resolved(a) || !is_dense_and_resolved(b)) return false;
  for (std::int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) != 1 && a.stride(d) != b.stride(d)) return false;
  }
  return true;
}

bool are_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && have_same_order(a, b);
}

std::vector<Positions> buckets(at::TensorList tensors) {
  struct Filling {
    std::size_t bucket = 0;
    std::int64_t free_bytes = -1;  // there is no bucket yet
  };
  std::unordered_map<c10::Device, std::map<at::ScalarType, Filling>> filling;
  constexpr std::int64_t k_bucket_bytes = std::int64_t{64} << 20;
  std::vector<Positions> all;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto bytes = bytes_in(tensors[i]);
    auto& [bucket, free_bytes] = filling[tensors[i].device()][tensors[i].scalar_type()];
    if (bytes > free_bytes) {
      bucket = all.size();
      free_bytes = k_bucket_bytes;
      all.emplace_back();
    }
    all[bucket].push_back(i);
    free_bytes -= bytes;
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

bool have_same_bits(const at::Tensor& a, const at::Tensor& b) {
  return flatten({a}).view(at::kByte).equal(flatten({b}).view(at::kByte));
}

}  // namespace use_gpu::detail
