// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/record_function.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace simulate_gpus {

/// Active while CPU operations compute what a GPU kernel would. Nobody sees these: neither autograd,
/// autocast and profilers, nor what the thread has switched on (torch.jit.trace, modes, observers of
/// the dispatcher).
struct InsideKernel {
  c10::impl::ForceDispatchKeyGuard kernels_only{
      c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
      c10::impl::tls_local_dispatch_key_set().excluded_ |
          c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset};
  at::DisableRecordFunctionGuard not_profiled;
};

}  // namespace simulate_gpus
