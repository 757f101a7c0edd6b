// SPDX-License-Identifier: MIT
//
// The one mechanism behind TransferLedger, TransferGuard, AllowTransfers and DefaultDeviceGuard.
// Kernels on the dispatch key DeferredInit, which LibTorch reserves for out-of-tree use, run before
// those of autograd and of the devices, may throw, and may change arguments. The key is switched on
// for a thread while a scope with something to do is open; without one it costs nothing.
//
// The open scopes are in ThreadLocalDebugInfo. LibTorch passes it, with the key, to the threads of a
// backward pass; at::ThreadLocalState passes it to any thread.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <memory>
#include <optional>
#include <thread>

namespace use_gpu {
enum class OnTransfer;  // transfers.hpp, of the room that counts and forbids
}

namespace use_gpu::detail {

struct TransferCounts;  // likewise

using Policy = std::array<OnTransfer, 3>;  // by TransferDirection; at first all are allowed

/// What a scope wants; what it leaves unset is as outside of it.
struct ScopeSettings {
  std::optional<Policy> policy = {};
  std::shared_ptr<TransferCounts> ledger = {};
  std::optional<c10::Device> factory_device = {};
};

/// What this thread's open scopes want together.
struct DispatchState {
  Policy policy{};
  c10::SmallVector<TransferCounts*, 4> ledgers = {};
  std::optional<c10::Device> factory_device = {};

  /// Now.
  [[nodiscard]] static DispatchState current();
  /// Whether a transfer may be refused or logged.
  [[nodiscard]] bool guards() const noexcept { return policy != Policy(); }
};

/// In an operator's kernel, while a scope with a factory_device is open: whether that operator was called
/// by another one. Kernels make indices and seeds by factories without a device, to read them on the host.
[[nodiscard]] bool is_called_by_operator();

constexpr auto k_dispatch_key = c10::DispatchKey::DeferredInit;
/// What a kernel of ours redispatches to.
constexpr c10::DispatchKeySet k_keys_below(c10::DispatchKeySet::FULL_AFTER, k_dispatch_key);

/// One more open scope of this thread, until it ends there, in whatever order. Ended in another
/// thread it changes nothing, and logs a warning.
class DispatchScope {
 public:
  explicit DispatchScope(ScopeSettings settings);
  ~DispatchScope();
  DispatchScope(const DispatchScope&) = delete;
  DispatchScope& operator=(const DispatchScope&) = delete;

  struct Open;

 private:
  std::shared_ptr<Open> own_;
};

}  // namespace use_gpu::detail
