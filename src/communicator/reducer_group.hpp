// SPDX-License-Identifier: MIT
//
// A Communicator's group as c10d's Reducer takes it. `group` outlives what is made of it.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <memory>

#include "communicator/group_state.hpp"

namespace use_gpu::detail {

/// Its backends as they are, for all-reduce and broadcast. Whoever waits for Gloo does so until the
/// time-out at most, and gets a CommunicatorError then.
[[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroup> reducer_group(GroupState& group);

/// Averages Reducer's buckets by Gloo to the same bits as Reducer itself, which would wait without a
/// time-out.
[[nodiscard]] std::unique_ptr<c10d::CommHookInterface> gloo_averages(GroupState& group);

}  // namespace use_gpu::detail
