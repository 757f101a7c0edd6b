// SPDX-License-Identifier: MIT
#include <ATen/ATen.h>
#include <ATen/ops/copy_native.h>

#include "kernels/compute.hpp"
#include "kernels/own_kernels.hpp"
#include "kernels/rehearsal.hpp"

namespace simulate_gpus {
namespace {

bool have_same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() &&
         a.is_neg() == b.is_neg();
}

// Whether LibTorch copies with one cudaMemcpyAsync and without a kernel.
bool is_plain(const at::Tensor& to, const at::Tensor& from) {
  return have_same_bits(to, from) && to.sizes() == from.sizes() &&
         ((to.is_contiguous() && from.is_contiguous()) ||
          (to.strides() == from.strides() && to.is_non_overlapping_and_dense()));
}

void compute_copy(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  static const auto& operation = Operation::of("aten::copy_");
  torch::jit::Stack stack{to, from, non_blocking};
  compute(operation, &stack);
}

at::Tensor& copy_(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (!to.is_cuda() || !from.is_cuda() || is_plain(to, from)) {
    // LibTorch first makes both sides plain if needed, by operations that come here again.
    return at::native::copy_(to, from, non_blocking);
  }
  if (to.device() == from.device()) {
    compute_copy(to, from, non_blocking);
    return to;
  }
  // Between devices, as LibTorch does without peer access: make the source plain on its device,
  // copy once, and scatter on the target's device.
  const at::Tensor sent =
      from.to(to.scalar_type()).expand_as(to).resolve_conj().resolve_neg().contiguous();
  if (is_plain(to, sent)) return at::native::copy_(to, sent, non_blocking);
  at::Tensor received = at::empty(to.sizes(), sent.options().device(to.device()));
  at::native::copy_(received, sent, non_blocking);
  compute_copy(to, received, non_blocking);
  return to;
}

}  // namespace

void add_copy(torch::Library& library) {
  keep_kernel(Operation::of("aten::copy_").handle, c10::DispatchKey::CUDA, c10::DispatchKey::CPU);
  library.impl("copy_", TORCH_FN(copy_));
}

}  // namespace simulate_gpus
