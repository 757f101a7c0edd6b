// SPDX-License-Identifier: MIT
#include <use_gpu/transfers.hpp>

#include <ostream>
#include <utility>

#include "dispatch_scope.hpp"
#include "text_table.hpp"

namespace use_gpu {
namespace {

constexpr std::pair<Transfer, const char*> k_directions[] = {
    {Transfer::host_to_device, "host to device"},
    {Transfer::device_to_host, "device to host"},
    {Transfer::device_to_device, "device to device"}};

std::unique_ptr<DispatchScope> scope_with(TransferPolicy policy) {
  auto state = DispatchState::current();
  state.policy = policy;
  return std::make_unique<DispatchScope>(std::move(state));
}

}  // namespace

TransferLedger::TransferLedger() : counts_(std::make_shared<TransferCounts>()) {
  auto state = DispatchState::current();
  state.ledgers.push_back(counts_);
  scope_ = std::make_unique<DispatchScope>(std::move(state));
}

TransferLedger::~TransferLedger() = default;

TransferCount TransferLedger::count(Transfer kind) const {
  const auto& counts = counts_->directions[static_cast<std::size_t>(kind)];
  return {counts.copies, counts.bytes};
}

std::int64_t TransferLedger::item_reads() const { return counts_->item_reads; }

bool TransferLedger::empty() const {
  for (const auto& [kind, name] : k_directions) {
    if (count(kind).copies > 0) return false;
  }
  return item_reads() == 0;
}

std::ostream& operator<<(std::ostream& out, const TransferLedger& ledger) {
  TextTable table({"transfer", "copies", "bytes"});
  for (const auto& [kind, name] : k_directions) {
    const auto [copies, bytes] = ledger.count(kind);
    table.add_row({name, std::to_string(copies), std::to_string(bytes)});
  }
  table.add_row({"item reads", std::to_string(ledger.item_reads()), ""});
  return out << table;
}

TransferGuard::TransferGuard(TransferPolicy policy) : scope_(scope_with(policy)) {}
TransferGuard::~TransferGuard() = default;

ExplicitTransfers::ExplicitTransfers() {
  // Where nobody forbids anything, as mostly, there is nothing to open.
  if (DispatchState::current().guards()) {
    scope_ = scope_with({OnTransfer::allow, OnTransfer::allow, OnTransfer::allow});
  }
}
ExplicitTransfers::~ExplicitTransfers() = default;

}  // namespace use_gpu
