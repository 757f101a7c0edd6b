// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/record_function.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>

#include <optional>

namespace simulate_gpus {

/// Active while CPU operations compute what a GPU kernel would. Nobody sees these: neither autograd,
/// autocast and profilers, nor what the thread has switched on (torch.jit.trace, modes, observers of
/// the dispatcher).
class InsideKernel {
 public:
  InsideKernel() {
    // Where nobody listens the switch would only make LibTorch look for listeners anew. A thread's own
    // may listen to some operations alone, which are drawn.
    if (at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION) ||
        !at::get_record_function_tls_().sorted_tls_callbacks_.empty())
      not_profiled_.emplace();
  }

 private:
  c10::impl::ForceDispatchKeyGuard kernels_only_{
      c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
      c10::impl::tls_local_dispatch_key_set().excluded_ |
          c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset};
  std::optional<at::DisableRecordFunctionGuard> not_profiled_;
};

/// CUDAGuard, which costs more than an operation of few values where the device is current already.
class OnDevice {
 public:
  C10_ALWAYS_INLINE explicit OnDevice(c10::Device device) {
    if (c10::cuda::current_device() != device.index()) {
      guard_.set_device(device);
    } else {
      c10::cuda::SetTargetDevice();  // which LibTorch may have put off
    }
  }

 private:
  c10::cuda::OptionalCUDAGuard guard_;
};

/// LibTorch warns of nothing in this thread.
class WithoutWarnings {
 public:
  WithoutWarnings() = default;
  WithoutWarnings(const WithoutWarnings&) = delete;
  WithoutWarnings& operator=(const WithoutWarnings&) = delete;

 private:
  struct : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent_;
  c10::WarningUtils::WarningHandlerGuard guard_{&silent_};
};

}  // namespace simulate_gpus
