// SPDX-License-Identifier: MIT
//
// Many small tensors as few large ones: a transfer takes at least 10 us, so a thousand parameters
// should not be sent one by one. For values only: callers switch autograd off.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <vector>

namespace use_gpu::detail {

/// What travels together: positions in a list of tensors, all of one device and one dtype, and of
/// at most 64 MB together; a larger tensor is alone in its bucket.
using Bucket = std::vector<std::size_t>;

/// Each tensor of the list in one bucket, in its order.
[[nodiscard]] std::vector<Bucket> buckets(at::TensorList tensors);

/// The tensors of a bucket.
[[nodiscard]] std::vector<at::Tensor> select(at::TensorList tensors, const Bucket& bucket);

/// Their values one after the other, in one dimension, on their device. One that is alone and
/// contiguous is not copied.
[[nodiscard]] at::Tensor flatten(at::TensorList tensors);

/// Views of `flat` with the shapes of `like`: the reverse of flatten.
[[nodiscard]] std::vector<at::Tensor> unflatten(const at::Tensor& flat, at::TensorList like);

/// The tensors in host memory, contiguous, in few transfers; waits for them. Contiguous host
/// tensors are not copied; copies have their own memory.
[[nodiscard]] std::vector<at::Tensor> gather_to_host(at::TensorList tensors);

/// Copies of values[i] into targets[i], of the same device, dtype and shape: on a GPU by few
/// kernels, and one more for each pair whose strides differ. Allocates only when it is made.
class EachCopy {
 public:
  EachCopy(at::TensorList values, at::TensorList targets);
  void run() const;

 private:
  struct Pairs {
    std::vector<at::Tensor> values, targets;
  };
  std::vector<Pairs> alike_;           // of one dtype and equal strides
  std::vector<at::Tensor> own_alike_;  // their targets, as they were given
  Pairs unlike_;
};

/// Runs a write that must not stop half-way: some tensors would keep old values. If it fails,
/// LibTorch's cached memory is released (the first launch of a kernel needs device memory) and the
/// whole write is repeated. A second error is passed on: the device and its values are lost.
void write_with_retry(c10::function_ref<void()> write);

/// Writes values[i] into targets[i], which has its dtype and shape: in place, in few transfers from
/// host memory. Allocates before it writes, so that running out of memory on a device changes
/// nothing; uses write_with_retry.
void scatter(at::TensorList values, at::TensorList targets);

}  // namespace use_gpu::detail
