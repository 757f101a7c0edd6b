// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace use_gpu::simulated_cuda {

/// Active while CPU operations compute what a GPU kernel would: hides them from autograd, autocast,
/// torch.jit.trace, profilers and observers of the dispatcher (the key DeferredInit).
struct InsideKernel {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard not_watched{
      c10::autocast_dispatch_keyset |
      c10::DispatchKeySet({c10::DispatchKey::Tracer, c10::DispatchKey::DeferredInit})};
  at::DisableRecordFunctionGuard not_profiled;
};

}  // namespace use_gpu::simulated_cuda
