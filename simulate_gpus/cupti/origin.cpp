// SPDX-License-Identifier: MIT
#include "cupti/origin.hpp"

#include <array>
#include <atomic>

#include "cupti/kinds.hpp"

namespace simulate_gpus::cupti {
namespace {

constexpr std::size_t k_kinds = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2 + 1;

// Destructors of the program's static objects call CUDA too, when the thread's own are gone.
thread_local bool is_over = false;

struct Pushed : std::array<std::vector<std::uint64_t>, k_kinds> {
  ~Pushed() { is_over = true; }
};
thread_local Pushed pushed;

// Far from the ids of LibTorch's operations, which count from 1: torch.profiler looks both up in one table.
constexpr std::uint32_t k_first_correlation = std::uint32_t{1} << 30;
std::atomic<std::uint32_t> last_correlation = k_first_correlation;

bool is_known(CUpti_ExternalCorrelationKind kind) {
  return static_cast<std::size_t>(kind) < k_kinds;
}

}  // namespace

Block Origin::block() const {
  Block block;
  if (!is_enabled(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)) return block;
  for (const auto& [kind, id] : external_ids) {
    ExternalRecord record{};
    record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    record.externalKind = kind;
    record.externalId = id;
    record.correlationId = correlation;
    block.add(record);
  }
  return block;
}

Origin new_origin() {
  Origin origin{.correlation = ++last_correlation};
  if (is_over) return origin;
  for (std::size_t kind = 0; kind < k_kinds; ++kind) {
    if (!pushed[kind].empty())
      origin.external_ids.emplace_back(static_cast<CUpti_ExternalCorrelationKind>(kind),
                                       pushed[kind].back());
  }
  return origin;
}

}  // namespace simulate_gpus::cupti

using namespace simulate_gpus::cupti;

extern "C" {

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                   std::uint64_t id) {
  if (!is_known(kind)) return CUPTI_ERROR_INVALID_PARAMETER;
  if (!is_over) pushed[static_cast<std::size_t>(kind)].push_back(id);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                  std::uint64_t* last) {
  if (!is_known(kind)) return CUPTI_ERROR_INVALID_PARAMETER;
  if (is_over || pushed[static_cast<std::size_t>(kind)].empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  auto& ids = pushed[static_cast<std::size_t>(kind)];
  if (last != nullptr) *last = ids.back();
  ids.pop_back();
  return CUPTI_SUCCESS;
}
}
