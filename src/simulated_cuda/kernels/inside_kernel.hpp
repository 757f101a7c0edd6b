// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace use_gpu::simulated_cuda {

/// For as long as a kernel computes, with operations of the CPU, what a GPU would: autograd,
/// autocast, profilers and those who watch the dispatcher (the key DeferredInit) see none of it.
struct InsideKernel {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::impl::ExcludeDispatchKeyGuard not_watched{
      c10::autocast_dispatch_keyset | c10::DispatchKeySet(c10::DispatchKey::DeferredInit)};
  at::DisableRecordFunctionGuard not_profiled;
};

}  // namespace use_gpu::simulated_cuda
