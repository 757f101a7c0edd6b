// SPDX-License-Identifier: MIT
//
// c10d's Reducer, for a Communicator's group. `group` outlives what is made of it.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <use_gpu/distributed_data_parallel.hpp>

#include "distributed/group_state.hpp"

namespace use_gpu::detail {

/// What is to be trained, each parameter once, in the order in which the network registers them.
struct Trained {
  std::vector<std::string> names = {};
  std::vector<at::Tensor> parameters = {};
  std::vector<bool> have_sparse_gradients = {};
};
[[nodiscard]] Trained trained_parameters_of(const torch::nn::Module& net);

/// The group's backends as they are, for all-reduce and broadcast. Whoever waits for Gloo does so until
/// the time-out at most, and gets a CommunicatorError then.
[[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroup> reducer_processes(GroupState& group);

/// As Python's. With Gloo it averages to the same bits, but waits until the time-out at most.
[[nodiscard]] std::shared_ptr<c10d::Reducer> make_reducer(
    const Trained& trained, const DistributedOptions& options, GroupState& group,
    c10::intrusive_ptr<c10d::ProcessGroup> processes);

}  // namespace use_gpu::detail
