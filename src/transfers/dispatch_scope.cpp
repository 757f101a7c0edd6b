// SPDX-License-Identifier: MIT
//
// Registers a fallthrough: operations without a kernel on our key ignore it. This must exist once
// in a process (LibTorch refuses a second fallback), so the library is always shared.
#include "transfers/dispatch_scope.hpp"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <string_view>
#include <type_traits>

namespace use_gpu::detail {
namespace {

constexpr std::string_view k_slot_name = "use_gpu";

// Where a thread keeps our settings. In a newer LibTorch, whose kinds are a class, this is a slot of
// our own; in an older one, a slot that LibTorch no longer uses. Content that is not ours is
// recognized by its type.
template <class Kind>
constexpr Kind slot() {
  if constexpr (std::is_enum_v<Kind>) {
    return Kind::PRODUCER_INFO;
  } else {
    return Kind(&k_slot_name);
  }
}
constexpr auto k_slot = slot<c10::DebugInfoKind>();

// Ends the scopes that are still open when their thread ends: those in static storage. Their
// settings would be destroyed with the thread, and LibTorch would read them when a static tensor is
// destroyed.
struct ThreadEnd {
  ~ThreadEnd() {
    c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(nullptr);
    c10::impl::tls_set_dispatch_key_included(k_dispatch_key, false);
  }
};

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

}  // namespace

const DispatchState& DispatchState::current() {
  static const DispatchState k_nothing_wanted;
  const auto* state = dynamic_cast<const DispatchState*>(c10::ThreadLocalDebugInfo::get(k_slot));
  return state != nullptr ? *state : k_nothing_wanted;
}

DispatchScope::DispatchScope(const DispatchState& state)
    : info_(k_slot, std::make_shared<DispatchState>(state)),
      was_on_(c10::impl::tls_is_dispatch_key_included(k_dispatch_key)) {
  // Made after LibTorch's own object, and so destroyed before it.
  [[maybe_unused]] static thread_local const ThreadEnd thread_end;
  const bool on = state.guards() || !state.ledgers.empty() || state.factory_device;
  c10::impl::tls_set_dispatch_key_included(k_dispatch_key, on);
}

// Not a guard of LibTorch's: this may run in another thread than the constructor did.
DispatchScope::~DispatchScope() {
  c10::impl::tls_set_dispatch_key_included(k_dispatch_key, was_on_);
}

}  // namespace use_gpu::detail
