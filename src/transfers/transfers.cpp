// SPDX-License-Identifier: MIT
#include <use_gpu/transfers.hpp>

#include <ATen/RedispatchFunctions.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/log.hpp>

#include <algorithm>
#include <optional>
#include <ostream>
#include <utility>

#include "messages/tensor_summary.hpp"
#include "messages/text_table.hpp"
#include "transfers/dispatch_scope.hpp"
#include "transfers/transfer_counts.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

constexpr std::pair<TransferDirection, const char*> k_directions[] = {
    {TransferDirection::host_to_device, "host to device"},
    {TransferDirection::device_to_host, "device to host"},
    {TransferDirection::device_to_device, "device to device"}};

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

// What the innermost guard decides.
OnTransfer wanted(TransferDirection kind) {
  const auto& policy = detail::DispatchState::current().policy;
  if (kind == TransferDirection::host_to_device) return policy.host_to_device;
  return kind == TransferDirection::device_to_host ? policy.device_to_host
                                                   : policy.device_to_device;
}

void forbid_or_log(OnTransfer what, const std::string& transfer) {
  if (what == OnTransfer::forbid) {
    throw TransferForbidden("Forbidden by a TransferGuard: " + transfer);
  }
  log_message(LogLevel::warning, "Implicit transfer: " + transfer);
}

void judge_copy(TransferDirection kind, c10::Device from, c10::Device to, std::size_t bytes) {
  const auto what = wanted(kind);
  if (what == OnTransfer::allow) return;
  forbid_or_log(what, "copy_ of " + std::to_string(bytes) + " bytes from " + from.str() + " to " +
                          to.str() +
                          " is implicit. If intended, write "
                          "use_gpu::to_device(x, device), or open a use_gpu::AllowTransfers "
                          "scope around it.");
}

void judge_read(const std::string& operation, const at::Tensor& x) {
  const auto what = wanted(TransferDirection::device_to_host);
  if (what == OnTransfer::allow) return;
  forbid_or_log(what,
                operation + " reads from " + x.device().str() + " to cpu (" +
                    std::string(c10::getDtypeNames(x.scalar_type()).first) + ", " +
                    std::to_string(detail::bytes_of(x)) +
                    " bytes) and waits for the device, as printing, item(), bool conversions "
                    "and results of unknown size do. Keep the value on the device, for example in "
                    "a use_gpu::MetricLog; if intended, open a use_gpu::AllowTransfers scope "
                    "around it.");
}

// The tallies that this transfer counts in: of each ledger the total, and if it wants that, the one
// of the call site. Looked up before the transfer, as that needs memory; counted after it.
c10::SmallVector<detail::TransferTally*, 4> tallies_here() {
  c10::SmallVector<detail::TransferTally*, 4> tallies;
  std::optional<detail::CallStack> stack;
  for (const auto& ledger : detail::DispatchState::current().ledgers) {
    tallies.push_back(&ledger->total);
    if (!ledger->has_sites) continue;
    if (!stack) stack = detail::CallStack::here();
    tallies.push_back(&ledger->of(*stack));
  }
  return tallies;
}

// The kernels on the key. They check the policy first, count at the end, and switch the key off in
// between: nested operations are part of the transfer.

at::Tensor& copy_(c10::DispatchKeySet keys, at::Tensor& self, const at::Tensor& source,
                  bool non_blocking) {
  const c10::Device from = source.device();
  const c10::Device to = self.device();
  if (C10_LIKELY(!is_transfer(from, to)) || source.numel() == 0) {
    return at::redispatch::copy_(keys & detail::k_keys_below, self, source, non_blocking);
  }
  const auto bytes = bytes_sent(self, source);
  const TransferDirection kind = direction(from, to);
  judge_copy(kind, from, to, bytes);
  const auto tallies = tallies_here();
  const detail::DispatchKeyScope off(false);
  at::redispatch::copy_(keys & detail::k_keys_below, self, source, non_blocking);
  for (detail::TransferTally* tally : tallies) {
    auto& counts = tally->directions[static_cast<std::size_t>(kind)];
    ++counts.copies;
    counts.bytes += bytes;
  }
  return self;
}

bool is_on_device(const at::Tensor& x) { return x.defined() && is_transfer(x.device(), c10::kCPU); }

[[gnu::noinline]] at::Scalar local_scalar_dense_elsewhere(c10::DispatchKeySet below,
                                                          const at::Tensor& self) {
  if (!is_on_device(self)) return at::redispatch::_local_scalar_dense(below, self);
  judge_read("item()", self);
  const auto tallies = tallies_here();
  const detail::DispatchKeyScope off(false);
  auto value = at::redispatch::_local_scalar_dense(below, self);
  for (detail::TransferTally* tally : tallies) ++tally->item_reads;
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

// Operations whose kernels on a device read a size or a result back without telling the dispatcher.
// clang-format off: several names to a line
constexpr const char* k_reading_operations[] = {
    "_coalesce",
    "_unique",
    "_unique2",
    "bincount",
    "equal",
    "masked_select",
    "masked_select.out",
    "mode",
    "mode.values",
    "nonzero",
    "nonzero.out",
    "repeat_interleave.Tensor",
    "unique_consecutive",
    "unique_dim",
    "unique_dim_consecutive",
};
// clang-format on

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
  judge_read(name, self);
  const auto tallies = tallies_here();
  const detail::DispatchKeyScope off(false);
  op.redispatchBoxed(below, stack);
  for (detail::TransferTally* tally : tallies) tally->item_reads += reads;
}

std::unique_ptr<detail::DispatchScope> scope_with(TransferPolicy policy) {
  auto state = detail::DispatchState::current();
  state.policy = policy;
  return std::make_unique<detail::DispatchScope>(state);
}

TORCH_LIBRARY_IMPL(aten, DeferredInit, library) {
  library.impl("copy_", TORCH_FN(copy_));
  library.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  for (const char* name : k_reading_operations) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&reading_operation>());
  }
}

}  // namespace

TransferLedger::TransferLedger() : TransferLedger(LedgerOptions()) {}

TransferLedger::TransferLedger(LedgerOptions options)
    : counts_(std::make_shared<detail::TransferCounts>(options)) {
  auto state = detail::DispatchState::current();
  state.ledgers.push_back(counts_);
  scope_ = std::make_unique<detail::DispatchScope>(state);
}

TransferLedger::~TransferLedger() = default;

TransferCount TransferLedger::count(TransferDirection kind) const {
  const auto& counts = counts_->total.directions[static_cast<std::size_t>(kind)];
  return {counts.copies, counts.bytes};
}

std::int64_t TransferLedger::item_reads() const { return counts_->total.item_reads; }

bool TransferLedger::empty() const {
  for (const auto& [kind, name] : k_directions) {
    if (count(kind).copies > 0) return false;
  }
  return item_reads() == 0;
}

std::vector<TransferSite> TransferLedger::sites() const { return counts_->sites(); }

std::ostream& operator<<(std::ostream& out, const TransferLedger& ledger) {
  detail::TextTable table({"transfer", "copies", "bytes"});
  for (const auto& [kind, name] : k_directions) {
    const auto [copies, bytes] = ledger.count(kind);
    table.add_row({name, std::to_string(copies), std::to_string(bytes)});
  }
  table.add_row({"item reads", std::to_string(ledger.item_reads()), ""});
  out << table;
  const auto sites = ledger.sites();
  return sites.empty() ? out : out << '\n' << sites;
}

std::ostream& operator<<(std::ostream& out, const std::vector<TransferSite>& sites) {
  constexpr std::size_t k_most_rows = 20;
  detail::TextTable table({"call site", "transfer", "copies", "bytes", "item reads"});
  for (std::size_t i = 0; i < std::min(sites.size(), k_most_rows); ++i) {
    const TransferSite& site = sites[i];
    const auto& [kind, name] = k_directions[static_cast<std::size_t>(site.direction)];
    table.add_row({site.where, name, std::to_string(site.copies), std::to_string(site.bytes),
                   std::to_string(site.item_reads)});
  }
  out << table;
  if (sites.size() > k_most_rows) out << "and " << sites.size() - k_most_rows << " more\n";
  return out;
}

TransferGuard::TransferGuard(TransferPolicy policy) : scope_(scope_with(policy)) {}
TransferGuard::~TransferGuard() = default;

AllowTransfers::AllowTransfers() {
  // Without a guard there is nothing to allow.
  if (detail::DispatchState::current().guards()) {
    scope_ = scope_with({OnTransfer::allow, OnTransfer::allow, OnTransfer::allow});
  }
}
AllowTransfers::~AllowTransfers() = default;

}  // namespace use_gpu
