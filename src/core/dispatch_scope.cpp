// SPDX-License-Identifier: MIT
//
// Registers a fallthrough: operations without a kernel on our key ignore it. This must exist once
// in a process (LibTorch refuses a second fallback), so the library is always shared.
#include "core/dispatch_scope.hpp"

#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/library.h>

#include <utility>
#include <vector>

#include "core/messages/log_message.hpp"

namespace use_gpu::detail {

struct DispatchScope::Open {
  void end() {
    has_ended = true;
    if (counting) at::removeCallback(*counting);
  }

  ScopeSettings settings;
  std::thread::id thread = std::this_thread::get_id();
  bool has_ended = false;  // of concern to that thread alone
  std::optional<at::CallbackHandle> counting = {};
};

namespace {

// This thread's outermost call of an operator, and how many calls are open inside of it. LibTorch
// tells each callback of each call; there may be several, of nested and of inherited scopes.
thread_local const at::RecordFunction* own_call = nullptr;
thread_local int inner_calls = 0;

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& call) {
  if (!call.operator_name()) return nullptr;  // a part of a program, named for a profiler
  if (own_call == nullptr) own_call = &call;
  if (own_call != &call) ++inner_calls;
  return nullptr;
}

void on_end(const at::RecordFunction& call, at::ObserverContext*) {
  if (!call.operator_name()) return;
  if (own_call == &call) {
    own_call = nullptr;
  } else if (own_call != nullptr) {
    --inner_calls;
  }
}

// Where a thread keeps our settings: a slot that LibTorch no longer uses. Content that is not ours is
// recognized by its type.
const auto k_slot = c10::DebugInfoKind::PRODUCER_INFO;

using Scopes = std::vector<std::shared_ptr<DispatchScope::Open>>;

// Immutable, as threads share it; the innermost scope is the last.
struct Info final : c10::DebugInfoBase {
  explicit Info(Scopes all) : scopes(std::move(all)) {}
  Scopes scopes;
};

void each_open_scope(const auto& visit) {
  const auto* info = dynamic_cast<const Info*>(c10::ThreadLocalDebugInfo::get(k_slot));
  if (info == nullptr) return;
  const auto here = std::this_thread::get_id();
  for (const auto& scope : info->scopes) {
    if (scope->thread != here || !scope->has_ended) visit(scope);
  }
}

Scopes open_scopes() {
  Scopes open;
  each_open_scope([&](const auto& scope) { open.push_back(scope); });
  return open;
}

// Whether nothing of LibTorch's is above our settings, which it takes away itself.
bool is_on_top() try {
  using All = c10::ThreadLocalDebugInfo;
  return All::current() && dynamic_cast<const Info*>(All::_peek(k_slot).get()) != nullptr;
} catch (const c10::Error&) {
  return false;
}

void set_open_scopes(Scopes open) {
  const auto before = c10::ThreadLocalDebugInfo::current();
  try {
    while (is_on_top()) c10::ThreadLocalDebugInfo::_pop(k_slot);
    if (open != open_scopes())
      c10::ThreadLocalDebugInfo::_push(k_slot, std::make_shared<Info>(std::move(open)));
  } catch (...) {  // no memory
    c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(before);
    throw;
  }
  const auto state = DispatchState::current();
  c10::impl::tls_set_dispatch_key_included(
      k_dispatch_key, state.guards() || !state.ledgers.empty() || state.factory_device);
}

// Ends the scopes that are still open when their thread ends: those in static storage. Their
// settings would be destroyed with the thread, and LibTorch would read them when a static tensor is
// destroyed.
struct ThreadEnd {
  ~ThreadEnd() {
    for (const auto& scope : open_scopes()) {
      if (scope->thread == std::this_thread::get_id()) scope->end();
    }
    c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(nullptr);
    c10::impl::tls_set_dispatch_key_included(k_dispatch_key, false);
  }
};

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

}  // namespace

bool is_called_by_operator() { return inner_calls > 0; }

DispatchState DispatchState::current() {
  DispatchState state;
  each_open_scope([&](const auto& scope) {
    const auto& settings = scope->settings;
    if (settings.policy) state.policy = *settings.policy;
    if (settings.ledger) state.ledgers.push_back(settings.ledger.get());
    if (settings.factory_device) state.factory_device = settings.factory_device;
  });
  return state;
}

DispatchScope::DispatchScope(ScopeSettings settings)
    : own_(std::make_shared<Open>(Open{std::move(settings)})) {
  if (const auto& device = own_->settings.factory_device; device && !device->is_cpu()) {
    own_->counting = at::addThreadLocalCallback(
        at::RecordFunctionCallback(on_begin, on_end).scopes({at::RecordScope::FUNCTION}));
  }
  auto open = open_scopes();
  // Made after LibTorch's own objects, and so destroyed before them.
  static_cast<void>(at::hasThreadLocalCallbacks());
  [[maybe_unused]] static thread_local const ThreadEnd thread_end;
  open.push_back(own_);
  set_open_scopes(std::move(open));
}

DispatchScope::~DispatchScope() {
  if (own_->thread != std::this_thread::get_id()) {
    log_message(LogLevel::warning,
                "A scope of use_gpu (TransferLedger, TransferGuard, AllowTransfers or "
                "DefaultDeviceGuard) ends in another thread than it began in: it changes nothing "
                "here, and stays open there until that thread ends.");
    return;
  }
  if (own_->has_ended) return;
  try {
    own_->end();
    set_open_scopes(open_scopes());
  } catch (const std::exception&) {  // no memory: it is passed over, and stays in the list
  }
}

}  // namespace use_gpu::detail
