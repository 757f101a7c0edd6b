// SPDX-License-Identifier: MIT
//
// Every transfer to, from and between simulated GPUs: LibTorch brings each copy_ of this backend
// down to _copy_from, and each item() to _local_scalar_dense. Both are done when they return, but
// for asynchronous copies into pinned memory, which streams.cpp postpones.
#include <ATen/Functions.h>
#include <torch/library.h>

#include "backend.hpp"

namespace use_gpu::simulated {
namespace {

at::Tensor on_host(const at::Tensor& x) { return x.device().type() == k_type ? host_view(x) : x; }

void postpone_copy(const at::Tensor& source, const at::Tensor& target) {
  postpone(current_stream(source.device()), [value = host_view(source).clone(), target] {
    const InsideDevice inside;
    const at::AutoDispatchBelowADInplaceOrView whoever_waits;
    target.copy_(value);
  });
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  const bool is_kernels_own = InsideDevice::is_entered();
  const InsideDevice inside;
  if (!is_kernels_own) {
    if (non_blocking && target.is_cpu() && is_pinned(target.const_data_ptr())) {
      postpone_copy(source, target);
      return target;
    }
    // What comes back done comes after all that its stream has to do.
    if (source.is_cpu()) wait_for(now(current_stream(target.device())));
    if (target.is_cpu()) wait_for(now(current_stream(source.device())));
  }
  on_host(target).copy_(on_host(source));
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  if (source.sizes() != target.sizes()) target.resize_(source.sizes());
  return copy_from(source, target, /*non_blocking=*/false);
}

at::Scalar item(const at::Tensor& x) {
  if (!InsideDevice::is_entered()) wait_for(now(current_stream(x.device())));
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
