// SPDX-License-Identifier: MIT
#include "transfers/transfer_counts.hpp"

#include <algorithm>
#include <functional>
#include <ostream>
#include <tuple>

#include "gpu_info/message.hpp"

namespace use_gpu::detail {

TransferTally& TransferCounts::of(const CallStack& stack, TransferDirection kind) {
  const std::scoped_lock lock(mutex_);
  return by_site_[{stack, kind}];
}

std::vector<TransferSite> TransferCounts::sites() const {
  std::vector<const decltype(by_site_)::value_type*> tallies;  // named without the lock
  std::unique_lock lock(mutex_);
  for (const auto& each : by_site_) {  // one that is empty is under way, or it failed
    if (!each.second.is_empty()) tallies.push_back(&each);
  }
  lock.unlock();
  std::vector<const CallStack*> stacks;
  for (const auto* const each : tallies) stacks.push_back(&each->first.first);
  std::map<std::pair<std::string, TransferDirection>, TransferSite> found;
  for (std::size_t i = 0; const auto& where : call_sites(stacks)) {
    const auto& [key, tally] = *tallies[i++];
    const auto kind = key.second;
    TransferSite& site = found.insert({{where, kind}, {where, kind, 0, 0, 0}}).first->second;
    site.copies += tally.copies;
    site.item_reads += tally.item_reads;
    site.bytes += tally.bytes;
  }
  std::vector<TransferSite> sites;
  for (auto& [key, site] : found) sites.push_back(std::move(site));
  // They are in order of their places.
  std::ranges::stable_sort(sites, std::greater(), [](const TransferSite& site) {
    return std::tuple(site.bytes, site.item_reads, site.copies);
  });
  return sites;
}

}  // namespace use_gpu::detail

namespace USE_GPU_EXPORT use_gpu {

constexpr const char* k_directions[] = {"host to device", "device to host", "device to device"};

std::ostream& operator<<(std::ostream& out, const TransferLedger& ledger) {
  detail::TextTable table{{"transfer", "copies", "bytes", "item reads"}};
  for (std::size_t i = 0; i < std::size(k_directions); ++i) {
    const auto direction = static_cast<TransferDirection>(i);
    const auto [copies, bytes] = ledger.count(direction);
    const auto reads = direction == TransferDirection::device_to_host ? ledger.item_reads() : 0;
    table.push_back(
        {k_directions[i], std::to_string(copies), std::to_string(bytes), std::to_string(reads)});
  }
  detail::print_table(out, table);
  const auto sites = ledger.sites();
  return sites.empty() ? out : out << '\n' << sites;
}

std::ostream& operator<<(std::ostream& out, const std::vector<TransferSite>& sites) {
  constexpr std::size_t k_most_rows = 20;
  detail::TextTable table{{"call site", "transfer", "copies", "bytes", "item reads"}};
  for (const auto& site : std::span(sites).first(std::min(sites.size(), k_most_rows))) {
    table.push_back({site.where, k_directions[static_cast<std::size_t>(site.direction)],
                     std::to_string(site.copies), std::to_string(site.bytes),
                     std::to_string(site.item_reads)});
  }
  detail::print_table(out, table);
  if (sites.size() > k_most_rows) out << "and " << sites.size() - k_most_rows << " more\n";
  return out;
}

}  // namespace use_gpu
