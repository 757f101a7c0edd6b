// SPDX-License-Identifier: MIT
//
// The library's only registration with LibTorch's dispatcher. It must exist once in a process (a
// second fallback for the key ends it): hence one source file in a library that is always shared.
#include "dispatch_scope.hpp"

#include <ATen/RedispatchFunctions.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>
#include <use_gpu/errors.hpp>

#include <utility>

#include "log_message.hpp"

namespace use_gpu {
namespace {

constexpr auto k_key = c10::DispatchKey::DeferredInit;
constexpr c10::DispatchKeySet k_keys_below(c10::DispatchKeySet::FULL_AFTER, k_key);
// LibTorch itself uses this slot no longer; a stranger's content is told from ours by its type.
constexpr auto k_slot = c10::DebugInfoKind::PRODUCER_INFO;

struct StateInfo final : c10::DebugInfoBase {
  explicit StateInfo(DispatchState s) : state(std::move(s)) {}
  DispatchState state;
};

const DispatchState& current_state() {
  static const DispatchState k_nothing_wanted;
  const auto* info = dynamic_cast<const StateInfo*>(c10::ThreadLocalDebugInfo::get(k_slot));
  return info != nullptr ? info->state : k_nothing_wanted;
}

// What a transfer does inside is part of it, and not seen again.
class KeyOff {
 public:
  KeyOff() { c10::impl::tls_set_dispatch_key_included(k_key, false); }
  ~KeyOff() { c10::impl::tls_set_dispatch_key_included(k_key, was_on_); }
  KeyOff(const KeyOff&) = delete;
  KeyOff& operator=(const KeyOff&) = delete;

 private:
  bool was_on_ = c10::impl::tls_is_dispatch_key_included(k_key);
};

// --- One transfer
// -----------------------------------------------------------------------------------

bool is_transfer(c10::Device from, c10::Device to) {
  return from != to && !from.is_meta() && !to.is_meta() && !(from.is_cpu() && to.is_cpu());
}

Transfer direction(c10::Device from, c10::Device to) {
  if (from.is_cpu()) return Transfer::host_to_device;
  return to.is_cpu() ? Transfer::device_to_host : Transfer::device_to_device;
}

OnTransfer decision(const TransferPolicy& policy, Transfer kind) {
  switch (kind) {
    case Transfer::host_to_device:
      return policy.host_to_device;
    case Transfer::device_to_host:
      return policy.device_to_host;
    case Transfer::device_to_device:
      break;
  }
  return policy.device_to_device;
}

// Logs the transfer or throws, as the innermost guard wants.
template <class Describe>
void judge(Transfer kind, const Describe& describe) {
  const OnTransfer what = decision(current_state().policy, kind);
  if (what == OnTransfer::allow) return;
  if (what == OnTransfer::forbid)
    throw TransferForbidden("Forbidden by a TransferGuard: " + describe());
  const KeyOff off;
  log_message(LogLevel::warning, "Implicit transfer: " + describe());
}

std::string describe_copy(c10::Device from, c10::Device to, std::size_t bytes) {
  return "copy_ of " + std::to_string(bytes) + " bytes from " + from.str() + " to " + to.str() +
         ", which nobody asked for by name. If it is meant, write use_gpu::to_device(x, device), "
         "or open a "
         "use_gpu::ExplicitTransfers scope around it.";
}

std::string describe_read(const std::string& operation, const at::Tensor& x) {
  return operation + " reads from " + x.device().str() + " (" +
         c10::getDtypeNames(x.scalar_type()).first + ", " + std::to_string(x.nbytes()) +
         " bytes) and waits for the device, as printing, item(), bool "
         "conversions and results of unknown size do. Keep the value on the device; if it is "
         "meant, open a "
         "use_gpu::ExplicitTransfers scope around it.";
}

// --- Kernels on the key
// -----------------------------------------------------------------------------

at::Tensor& copy_(c10::DispatchKeySet keys, at::Tensor& self, const at::Tensor& source,
                  bool non_blocking) {
  const c10::Device from = source.device();
  const c10::Device to = self.device();
  if (C10_LIKELY(!is_transfer(from, to))) {
    return at::redispatch::copy_(keys & k_keys_below, self, source, non_blocking);
  }
  const auto bytes = source.nbytes();
  const Transfer kind = direction(from, to);
  judge(kind, [&] { return describe_copy(from, to, bytes); });
  {
    const KeyOff off;
    at::redispatch::copy_(keys & k_keys_below, self, source, non_blocking);
  }
  for (const auto& ledger : current_state().ledgers) {
    auto& counts = ledger->directions[static_cast<std::size_t>(kind)];
    ++counts.copies;
    counts.bytes += static_cast<std::int64_t>(bytes);
  }
  return self;
}

// A read of one value or size from x's device, done by `read`.
template <class Read>
auto read_back(const at::Tensor& x, const std::string& operation, const Read& read) {
  judge(Transfer::device_to_host, [&] { return describe_read(operation, x); });
  const auto count = [] {
    for (const auto& ledger : current_state().ledgers) ++ledger->item_reads;
  };
  const KeyOff off;
  if constexpr (std::is_void_v<decltype(read())>) {
    read();
    count();
  } else {
    auto result = read();
    count();
    return result;
  }
}

bool is_on_device(const at::Tensor& x) { return x.defined() && is_transfer(x.device(), c10::kCPU); }

[[gnu::noinline]] at::Scalar local_scalar_dense_elsewhere(c10::DispatchKeySet below,
                                                          const at::Tensor& self) {
  const auto read = [&] { return at::redispatch::_local_scalar_dense(below, self); };
  return is_on_device(self) ? read_back(self, "item()", read) : read();
}

// A number on the CPU is read with some 600 instructions in all; asking the dispatcher once more
// would add a sixth. So, where nothing but autograd, which does nothing here, stands in between, it
// is not asked.
constexpr c10::DispatchKeySet k_plain_cpu{c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU,
                                          c10::DispatchKey::ADInplaceOrView,
                                          c10::DispatchKey::BackendSelect};

at::Scalar local_scalar_dense(c10::DispatchKeySet keys, const at::Tensor& self) {
  const auto below = keys & k_keys_below;
  if (C10_LIKELY(k_plain_cpu.has_all(below))) return at::native::_local_scalar_dense_cpu(self);
  return local_scalar_dense_elsewhere(below, self);
}

// Operations whose kernels on a device read a size or a result back without telling the dispatcher,
// or that would on a GPU but not on a simulated one.
constexpr const char* k_reading_operations[] = {"_unique",
                                                "_unique2",
                                                "bincount",
                                                "equal",
                                                "masked_select",
                                                "masked_select.out",
                                                "nonzero",
                                                "nonzero.out",
                                                "repeat_interleave.Tensor",
                                                "unique_consecutive",
                                                "unique_dim",
                                                "unique_dim_consecutive"};

void reading_operation(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                       torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const at::Tensor self = arguments[0].toTensor();
  // repeat_interleave reads the sum of its repeats, unless it is told the size of its output.
  const bool knows_size = op.schema().name() == "aten::repeat_interleave" && !arguments[1].isNone();
  const auto run = [&] { op.redispatchBoxed(keys & k_keys_below, stack); };
  if (!is_on_device(self) || knows_size) {
    run();
  } else {
    read_back(self, op.schema().name().substr(sizeof("aten::") - 1), run);
  }
}

// All factories that take a device and no tensor; from_file's memory is the host's, and what
// LibTorch creates for itself only (_cudnn_init_dropout_state, _make_dep_token) it creates where it
// must.
constexpr const char* k_factories[] = {"_efficientzerotensor",
                                       "_empty_affine_quantized",
                                       "_sparse_compressed_tensor_with_dims",
                                       "_sparse_coo_tensor_with_dims",
                                       "arange",
                                       "arange.start",
                                       "arange.start_step",
                                       "bartlett_window",
                                       "bartlett_window.periodic",
                                       "blackman_window",
                                       "blackman_window.periodic",
                                       "empty.memory_format",
                                       "empty.names",
                                       "empty_permuted",
                                       "empty_strided",
                                       "eye",
                                       "eye.m",
                                       "fft_fftfreq",
                                       "fft_rfftfreq",
                                       "full",
                                       "full.names",
                                       "hamming_window",
                                       "hamming_window.periodic",
                                       "hamming_window.periodic_alpha",
                                       "hamming_window.periodic_alpha_beta",
                                       "hann_window",
                                       "hann_window.periodic",
                                       "kaiser_window",
                                       "kaiser_window.beta",
                                       "kaiser_window.periodic",
                                       "linspace",
                                       "logspace",
                                       "normal.float_float",
                                       "ones",
                                       "ones.names",
                                       "rand",
                                       "rand.generator",
                                       "rand.generator_with_names",
                                       "rand.names",
                                       "randint",
                                       "randint.generator",
                                       "randint.low",
                                       "randint.low_generator",
                                       "randn",
                                       "randn.generator",
                                       "randn.generator_with_names",
                                       "randn.names",
                                       "randperm",
                                       "randperm.generator",
                                       "range",
                                       "range.step",
                                       "scalar_tensor",
                                       "sparse_coo_tensor.size",
                                       "tril_indices",
                                       "triu_indices",
                                       "zeros",
                                       "zeros.names"};

// Fills in the device of DeviceScope where the call names none.
void factory(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (const auto device = current_state().factory_device) {
    const auto& arguments = op.schema().arguments();
    const auto first = stack->size() - arguments.size();
    const auto argument = [&](const char* name) -> c10::IValue& {
      return (*stack)[first + static_cast<std::size_t>(*op.schema().argumentIndexWithName(name))];
    };
    const auto& pinned = argument("pin_memory");
    const bool is_pinned = pinned.isBool() && pinned.toBool();
    if (argument("device").isNone() && !is_pinned) argument("device") = *device;
  }
  op.redispatchBoxed(keys & k_keys_below, stack);
}

TORCH_LIBRARY_IMPL(_, DeferredInit, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, DeferredInit, m) {
  m.impl("copy_", TORCH_FN(copy_));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  for (const char* name : k_reading_operations) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&reading_operation>());
  }
  for (const char* name : k_factories) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&factory>());
  }
}

}  // namespace

DispatchState DispatchState::current() { return current_state(); }

bool DispatchState::guards() const noexcept {
  return policy.host_to_device != OnTransfer::allow || policy.device_to_host != OnTransfer::allow ||
         policy.device_to_device != OnTransfer::allow;
}

DispatchScope::DispatchScope(DispatchState state)
    : info_(k_slot, std::make_shared<StateInfo>(state)),
      was_on_(c10::impl::tls_is_dispatch_key_included(k_key)) {
  const bool wanted = state.guards() || !state.ledgers.empty() || state.factory_device;
  c10::impl::tls_set_dispatch_key_included(k_key, wanted);
}

DispatchScope::~DispatchScope() { c10::impl::tls_set_dispatch_key_included(k_key, was_on_); }

}  // namespace use_gpu
