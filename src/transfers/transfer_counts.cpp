// SPDX-License-Identifier: MIT
#include "transfers/transfer_counts.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace use_gpu::detail {

TransferTally& TransferCounts::of(const CallStack& stack) {
  const std::scoped_lock lock(mutex_);
  return by_stack_[stack];
}

std::vector<TransferSite> TransferCounts::sites() const {
  std::vector<std::pair<const CallStack*, const TransferTally*>> tallies;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [stack, tally] : by_stack_) tallies.emplace_back(&stack, &tally);
  }
  CallSiteNames names;
  std::map<std::pair<std::string, TransferDirection>, TransferSite> found;
  for (const auto& [stack, tally] : tallies) {
    const std::string where = names.name(*stack);
    for (const auto kind : {TransferDirection::host_to_device, TransferDirection::device_to_host,
                            TransferDirection::device_to_device}) {
      const auto& [copies, bytes] = tally->directions[static_cast<std::size_t>(kind)];
      const bool has_reads = kind == TransferDirection::device_to_host && tally->item_reads > 0;
      if (copies == 0 && !has_reads) continue;
      TransferSite& site =
          found.try_emplace({where, kind}, TransferSite{where, kind, 0, 0, 0}).first->second;
      site.copies += copies;
      site.bytes += bytes;
      if (has_reads) site.item_reads += tally->item_reads;
    }
  }
  std::vector<TransferSite> sites;
  for (auto& [key, site] : found) sites.push_back(std::move(site));
  std::ranges::sort(sites, [](const TransferSite& a, const TransferSite& b) {
    return std::tie(b.bytes, b.item_reads, b.copies, a.where) <
           std::tie(a.bytes, a.item_reads, a.copies, b.where);
  });
  return sites;
}

}  // namespace use_gpu::detail
