// SPDX-License-Identifier: MIT
//
// A tensor's memory seen as another tensor; and many small tensors as few large ones, because a
// transfer takes at least 10 us, so that a thousand parameters should not be sent one by one. For
// copies of memory: autograd knows nothing of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace use_gpu::detail {

/// A dense tensor of these sizes and strides in x's storage, `begin` bytes after its start, which
/// must be a multiple of the dtype's size. Keeps the storage; its version is its own.
[[nodiscard]] at::Tensor memory_view(const at::Tensor& x, std::int64_t begin, at::ScalarType dtype,
                                     at::IntArrayRef sizes, at::IntArrayRef strides);

/// The memory of a dense x in one dimension, as elements of that dtype.
[[nodiscard]] at::Tensor flat_view(const at::Tensor& x, at::ScalarType dtype);

/// The widest integer dtype whose size divides that number.
[[nodiscard]] at::ScalarType widest_integer(std::uintptr_t bytes);

/// Where x begins in its storage, in bytes.
[[nodiscard]] std::int64_t begin_of(const at::Tensor& x);

/// The bytes of its values.
[[nodiscard]] std::int64_t bytes_in(const at::Tensor& x);

/// Whether x's values are its memory: no gaps between them, none conjugated or negated lazily.
[[nodiscard]] bool is_dense_and_resolved(const at::Tensor& x);

/// Whether the elements of two tensors of one shape lie in the same order, and are all there is.
[[nodiscard]] bool have_same_order(const at::Tensor& a, const at::Tensor& b);

/// Whether two tensors of one shape have equal values exactly if their memory is equal.
[[nodiscard]] bool are_alike(const at::Tensor& a, const at::Tensor& b);

/// Of some tensors in a list.
using Positions = std::vector<std::size_t>;

/// What travels together: each tensor of the list in one bucket, in its order. A bucket's tensors are
/// of one device and one dtype, and of at most 64 MB together; a larger one is alone in its bucket.
[[nodiscard]] std::vector<Positions> buckets(at::TensorList tensors);

/// The tensors at those positions.
[[nodiscard]] std::vector<at::Tensor> select(at::TensorList tensors, const Positions& positions);

/// Their values in one dimension on their device, all of one dtype, one after the other. One that is
/// alone and contiguous is not copied. LibTorch's unflatten_dense_tensors is the reverse.
[[nodiscard]] at::Tensor flatten(at::TensorList tensors);

/// Whether two tensors of one device have the same values, bit for bit.
[[nodiscard]] bool have_same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace use_gpu::detail
