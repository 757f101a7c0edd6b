// SPDX-License-Identifier: MIT
//
// The scope in which a transfer is meant. Under a TransferGuard (transfers.hpp) a transfer outside of
// such a scope is refused or logged; without a guard it does nothing:
//
//   { use_gpu::AllowTransfers certain; y = x.cpu(); }
#pragma once

#include <use_gpu/export.hpp>

#include <memory>

namespace use_gpu::detail {
class DispatchScope;
}

namespace USE_GPU_EXPORT use_gpu {

/// "100 % certain": allows the transfers of its scope, whatever guard encloses it.
class AllowTransfers {
 public:
  [[nodiscard]] AllowTransfers();
  ~AllowTransfers();

 private:
  std::unique_ptr<detail::DispatchScope> scope_;
};

}  // namespace use_gpu
