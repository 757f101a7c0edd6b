// SPDX-License-Identifier: MIT
//
// The modes in which this library handles tensors for their values alone, whatever the caller's are:
// transfers are meant, and autograd records nothing.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <use_gpu/allow_transfers.hpp>

namespace use_gpu::detail {

/// For writing in place: tensors that were made in inference mode can be written too.
struct ValueScope {
  AllowTransfers certain;
  c10::InferenceMode inference;
};

/// For new tensors, which the caller may write and train in any mode.
struct NewTensorScope {
  AllowTransfers certain;
  c10::InferenceMode no_inference{false};
  at::NoGradGuard no_grad;
};

}  // namespace use_gpu::detail
