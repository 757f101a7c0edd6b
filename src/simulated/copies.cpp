// SPDX-License-Identifier: MIT
//
// Every transfer to, from and between simulated GPUs: LibTorch brings each copy_ of this backend
// down to _copy_from, and each item() to _local_scalar_dense. Both are done when they return.
#include <ATen/Functions.h>
#include <torch/library.h>

#include "backend.hpp"

namespace use_gpu::simulated {
namespace {

at::Tensor on_host(const at::Tensor& x) { return x.device().type() == k_type ? host_view(x) : x; }

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool /*non_blocking*/) {
  const InsideDevice inside;
  on_host(target).copy_(on_host(source));
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  if (source.sizes() != target.sizes()) target.resize_(source.sizes());
  return copy_from(source, target, /*non_blocking=*/false);
}

at::Scalar item(const at::Tensor& x) {
  const InsideDevice inside;
  return host_view(x).item();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", item);
}

// LibTorch would first materialize a conjugated or negated source, by copying it: without end, as
// that is _copy_from again. host_view() keeps the bits, so such tensors come here as they are.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace
}  // namespace use_gpu::simulated
