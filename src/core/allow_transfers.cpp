// SPDX-License-Identifier: MIT
#include <use_gpu/allow_transfers.hpp>

#include "core/dispatch_scope.hpp"

namespace USE_GPU_EXPORT use_gpu {

AllowTransfers::AllowTransfers() {
  // Without a guard there is nothing to allow.
  if (detail::DispatchState::current().guards())
    scope_ =
        std::make_unique<detail::DispatchScope>(detail::ScopeSettings{.policy = detail::Policy()});
}
AllowTransfers::~AllowTransfers() = default;

}  // namespace use_gpu
