// SPDX-License-Identifier: MIT
//
// The one mechanism behind TransferLedger, TransferGuard, AllowTransfers and DefaultDeviceGuard.
// Kernels on the dispatch key DeferredInit, which LibTorch reserves for out-of-tree use, run before
// those of autograd and of the devices, may throw, and may change arguments. The key is switched on
// for a thread while a scope with something to do is open; without one it costs nothing.
//
// The settings are in ThreadLocalDebugInfo. LibTorch passes it, with the key, to the threads of a
// backward pass; at::ThreadLocalState passes it to any thread.
#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <use_gpu/transfers.hpp>

#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace use_gpu::detail {

/// The merged settings of a thread's open scopes. Immutable; an inner scope replaces them.
struct DispatchState final : c10::DebugInfoBase {
  std::array<OnTransfer, 3> policy{};  // by TransferDirection; at first all are allowed
  std::vector<std::shared_ptr<TransferCounts>> ledgers;
  std::optional<c10::Device> factory_device;

  /// Of this thread, now.
  [[nodiscard]] static const DispatchState& current();
  /// Whether a transfer may be refused or logged.
  [[nodiscard]] bool guards() const noexcept { return policy != decltype(policy)(); }
};

constexpr auto k_dispatch_key = c10::DispatchKey::DeferredInit;
/// What a kernel of ours redispatches to.
constexpr c10::DispatchKeySet k_keys_below(c10::DispatchKeySet::FULL_AFTER, k_dispatch_key);

/// Makes that state the thread's, and switches the key on or off accordingly, until the scope ends.
class DispatchScope {
 public:
  explicit DispatchScope(const DispatchState& state);
  ~DispatchScope();

 private:
  c10::DebugInfoGuard info_;
  bool was_on_;
};

}  // namespace use_gpu::detail
