// SPDX-License-Identifier: MIT
//
// Where records come from: a call of CUDA, and what the program was doing when it made it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "cupti/records.hpp"

namespace simulate_gpus::cupti {

struct Origin {
  std::uint32_t correlation = 0;
  /// The innermost of each kind that this thread had pushed.
  std::vector<std::pair<CUpti_ExternalCorrelationKind, std::uint64_t>> external_ids = {};

  /// A block that begins with the records of the external ids.
  [[nodiscard]] Block block() const;
};

/// Of a call that this thread makes now.
Origin new_origin();

}  // namespace simulate_gpus::cupti
