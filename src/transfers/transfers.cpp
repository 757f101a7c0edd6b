// SPDX-License-Identifier: MIT
#include <use_gpu/transfers.hpp>

#include <ATen/RedispatchFunctions.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <torch/library.h>

#include <algorithm>

#include "core/dispatch_scope.hpp"
#include "core/messages/log_message.hpp"
#include "core/messages/tensor_summary.hpp"
#include "transfers/transfer_counts.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

bool is_transfer(c10::Device from, c10::Device to) {
  return from != to && !from.is_meta() && !to.is_meta() && !(from.is_cpu() && to.is_cpu());
}

TransferDirection direction(c10::Device from, c10::Device to) {
  if (from.is_cpu()) return TransferDirection::host_to_device;
  return to.is_cpu() ? TransferDirection::device_to_host : TransferDirection::device_to_device;
}

// The bytes sent: LibTorch expands a source to its target's shape before the copy, and converts it
// to the target's dtype before a copy to a device, but after a copy to the host.
std::size_t bytes_sent(const at::Tensor& target, const at::Tensor& source) {
  if (target.layout() != c10::kStrided || source.layout() != c10::kStrided)
    return detail::bytes_of(source);
  const auto itemsize = target.is_cpu() ? source.itemsize() : target.itemsize();
  return static_cast<std::size_t>(target.numel()) * itemsize;
}

// Does a transfer, or what the innermost guard says instead, `describe` being what people read then.
// `work` runs with the key off: nested operations are part of the transfer. Returns where it counts:
// in the total of each ledger, and in the call site of those that want it.
auto transfer(TransferDirection kind, const auto& describe, const auto& work) {
  const auto index = static_cast<std::size_t>(kind);
  const auto state = detail::DispatchState::current();
  const auto wanted = state.policy[index];
  if (wanted == OnTransfer::forbid)
    throw TransferForbidden("Forbidden by a TransferGuard: " + describe());
  if (wanted == OnTransfer::log)
    detail::log_message(LogLevel::warning, "Implicit transfer: " + describe());
  c10::SmallVector<detail::TransferTally*, 4> tallies;  // found before it happens: it takes memory
  std::optional<detail::CallStack> stack;
  for (auto* const ledger : state.ledgers) {
    tallies.push_back(&ledger->totals[index]);
    if (!ledger->has_sites) continue;
    if (!stack) stack = detail::CallStack::here();
    tallies.push_back(&ledger->of(*stack, kind));
  }
  const c10::impl::ExcludeDispatchKeyGuard off(detail::k_dispatch_key);
  work();
  return tallies;
}

// Does what reads that many values of x.
void read(const std::string& operation, const at::Tensor& x, int values, const auto& work) {
  const auto describe = [&] {
    return c10::str(
        operation, " reads from ", x.device(), " to cpu (",
        c10::getDtypeNames(x.scalar_type()).first, ", ", detail::bytes_of(x),
        " bytes) and waits for the device, as printing, item(), bool conversions and "
        "results of unknown size do. Keep the value on the device, for example in a "
        "use_gpu::MetricLog; if intended, open a use_gpu::AllowTransfers scope around it.");
  };
  for (auto* const tally : transfer(TransferDirection::device_to_host, describe, work))
    tally->item_reads += values;
}

// The kernels on the key.

at::Tensor& copy_(c10::DispatchKeySet keys, at::Tensor& self, const at::Tensor& source,
                  bool non_blocking) {
  const auto below = keys & detail::k_keys_below;
  const c10::Device from = source.device();
  const c10::Device to = self.device();
  if (C10_LIKELY(!is_transfer(from, to)) || source.numel() == 0) {
    return at::redispatch::copy_(below, self, source, non_blocking);
  }
  const auto bytes = bytes_sent(self, source);
  const auto describe = [&] {
    return c10::str("copy_ of ", bytes, " bytes from ", from, " to ", to,
                    " is implicit. If intended, write use_gpu::to_device(x, device), or open a "
                    "use_gpu::AllowTransfers scope around it.");
  };
  const auto tallies = transfer(direction(from, to), describe,
                                [&] { at::redispatch::copy_(below, self, source, non_blocking); });
  for (auto* const tally : tallies) {
    ++tally->copies;
    tally->bytes += bytes;
  }
  return self;
}

bool is_on_device(const at::Tensor& x) { return x.defined() && is_transfer(x.device(), c10::kCPU); }

[[gnu::noinline]] at::Scalar local_scalar_dense_elsewhere(c10::DispatchKeySet below,
                                                          const at::Tensor& self) {
  if (!is_on_device(self)) return at::redispatch::_local_scalar_dense(below, self);
  at::Scalar value;
  read("item()", self, /*values=*/1,
       [&] { value = at::redispatch::_local_scalar_dense(below, self); });
  return value;
}

// Reading a number on the CPU takes about 600 instructions; one more dispatch would add a sixth. So
// it is skipped if only autograd, which does nothing here, is in between.
constexpr c10::DispatchKeySet k_plain_cpu{c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU,
                                          c10::DispatchKey::ADInplaceOrView,
                                          c10::DispatchKey::BackendSelect};

at::Scalar local_scalar_dense(c10::DispatchKeySet keys, const at::Tensor& self) {
  const auto below = keys & detail::k_keys_below;
  if (C10_LIKELY(k_plain_cpu.has_all(below))) return at::native::_local_scalar_dense_cpu(self);
  return local_scalar_dense_elsewhere(below, self);
}

// Whether two tensors share one memory, so LibTorch knows without reading that they are equal.
bool is_same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.has_storage() && b.has_storage() && a.is_alias_of(b) &&
         a.storage_offset() == b.storage_offset() && a.strides() == b.strides() &&
         a.dtype() == b.dtype() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

// For each row too long for CUDA's other kernel this one reads five values, or two if bool.
int reads_of_mode(const at::Tensor& x, std::int64_t dim) {
  constexpr std::int64_t k_longest_row = 2048;
  const auto size = x.dim() == 0 ? 1 : x.size(dim);
  if (size <= k_longest_row) return 0;
  return static_cast<int>(x.numel() / size) * (x.scalar_type() == at::kBool ? 2 : 5);
}

// How many values such a kernel reads. tests/transfers/ledger_truth_test.cpp checks this.
int reads_of(const std::string& name, c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (name == "nonzero" || name == "masked_select" || self.is_nested()) return 1;
  if (self.numel() == 0) return 0;
  if (name == "equal") {
    const at::Tensor& other = arguments[1].toTensor();
    return self.sizes() == other.sizes() && !is_same_memory(self, other) ? 1 : 0;
  }
  if (name == "bincount") return 2;  // its least and its greatest value
  if (name == "_coalesce") return self._nnz() < 2 ? 0 : 1;
  if (name == "mode") return reads_of_mode(self, arguments[1].toInt());
  if (name == "repeat_interleave") return arguments[1].isNone() ? 2 : 0;  // unless told the size
  return 1;
}

void reading_operation(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                       torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const at::Tensor self = arguments[0].toTensor();
  const auto below = keys & detail::k_keys_below;
  const auto name = op.schema().name().substr(sizeof("aten::") - 1);
  const int reads = is_on_device(self) ? reads_of(name, arguments) : 0;
  if (reads == 0) return op.redispatchBoxed(below, stack);
  read(name, self, reads, [&] { op.redispatchBoxed(below, stack); });
}

TORCH_LIBRARY_IMPL(aten, DeferredInit, library) {
  library.impl("copy_", TORCH_FN(copy_));
  library.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  // Their kernels on a device read a size or a result back without telling the dispatcher.
  for (const char* name :
       {"_coalesce", "_unique", "_unique2", "bincount", "equal", "masked_select",
        "masked_select.out", "mode", "mode.values", "nonzero", "nonzero.out",
        "repeat_interleave.Tensor", "unique_consecutive", "unique_dim", "unique_dim_consecutive"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&reading_operation>());
  }
}

}  // namespace

TransferLedger::TransferLedger() : TransferLedger(LedgerOptions()) {}

TransferLedger::TransferLedger(LedgerOptions options)
    : counts_(std::make_shared<detail::TransferCounts>(options)),
      scope_(std::make_unique<detail::DispatchScope>(detail::ScopeSettings{.ledger = counts_})) {}

TransferLedger::~TransferLedger() = default;

TransferCount TransferLedger::count(TransferDirection kind) const {
  const auto& total = counts_->totals[static_cast<std::size_t>(kind)];
  return {total.copies, total.bytes};
}

std::int64_t TransferLedger::item_reads() const {
  return counts_->totals[static_cast<std::size_t>(TransferDirection::device_to_host)].item_reads;
}

bool TransferLedger::empty() const {
  return std::ranges::all_of(counts_->totals, &detail::TransferTally::is_empty);
}

std::vector<TransferSite> TransferLedger::sites() const { return counts_->sites(); }

TransferGuard::TransferGuard(TransferPolicy policy)
    : scope_(std::make_unique<detail::DispatchScope>(detail::ScopeSettings{detail::Policy{
          policy.host_to_device, policy.device_to_host, policy.device_to_device}})) {}
TransferGuard::~TransferGuard() = default;

}  // namespace use_gpu
