// SPDX-License-Identifier: MIT
//
// What a ledger counts, in total and for each call site.
#pragma once

#include <use_gpu/transfers.hpp>

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "transfers/call_stack.hpp"

namespace use_gpu::detail {

/// Of one direction. Backward passes add from several threads.
struct TransferTally {
  [[nodiscard]] bool is_empty() const { return copies == 0 && item_reads == 0; }

  std::atomic<std::int64_t> copies = 0;
  std::atomic<std::int64_t> item_reads = 0;  // device to host
  std::atomic<std::uint64_t> bytes = 0;
};

/// The counts of a ledger. Thread-safe.
struct TransferCounts {
  explicit TransferCounts(LedgerOptions options) : has_sites(options.call_sites) {}

  /// That of a call site; it stays where it is.
  TransferTally& of(const CallStack& stack, TransferDirection kind);
  [[nodiscard]] std::vector<TransferSite> sites() const;

  const bool has_sites;
  std::array<TransferTally, 3> totals;  // by TransferDirection

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<CallStack, TransferDirection>, TransferTally> by_site_;
};

}  // namespace use_gpu::detail
