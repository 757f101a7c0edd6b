// SPDX-License-Identifier: MIT
//
// The state of a Communicator, and the steps of each call: the ranks compare their calls, then run
// them; an error while running ends the group.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <use_gpu/communicator.hpp>

#include <functional>

#include "communicator/lifeline.hpp"
#include "communicator/rendezvous.hpp"

namespace use_gpu::detail {

/// What the comparison found.
struct CallComparison {
  bool same_network, same_choice;
  int refusing_rank;  // the highest; -1 if none refuses
};

class GroupState {
 public:
  explicit GroupState(c10::Device own) : device(own) {}
  ~GroupState();
  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;

  /// Whether x is sent by NCCL: only if it is on this rank's own GPU.
  [[nodiscard]] bool by_nccl(const at::Tensor& x) const;

  /// The first message of every call, small and always of the same size: with different sizes Gloo
  /// ends the process, with different dtypes values are wrong. ArgumentError on every rank unless
  /// all make the same call; the caller checks the rest.
  CallComparison compare_calls(const std::string& operation, const std::string& call,
                               std::int64_t network = 0, std::int64_t choice = 0,
                               bool refuses = false);

  /// What a rank does before the calls are compared. If it throws, the others get an error then.
  void prepare(const std::string& operation, const std::function<void()>& work);

  /// What a rank does once the calls are compared. If it throws, the rank leaves, so that none waits.
  void take_part(const std::string& operation, const std::function<void()>& work);

  /// In place, on the result of to_wire(). Returns when done; on an error this rank leaves.
  void all_reduce(const std::string& operation, const at::Tensor& wire, ReduceOp how, bool on_nccl);
  void broadcast(const std::string& operation, const at::Tensor& wire, int root, bool on_nccl);

  int rank = 0;
  int size = 1;
  c10::Device device;
  std::chrono::milliseconds timeout{};
  std::vector<Peer> peers;
  Lifeline lifeline;                       // not connected in a group of one
  c10::intrusive_ptr<c10d::Backend> gloo;  // in a group of one: null until first use
  c10::intrusive_ptr<c10d::Backend> nccl;  // where each rank has a CUDA GPU
  std::string failure;                     // why the group is no longer usable

 private:
  using Start = std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend&)>;
  void run(const std::string& operation, bool on_nccl, const Start& start);
  void wait_for_gloo(c10d::Work& work);
  void leave(const std::string& operation, const std::string& cause);
  [[nodiscard]] std::string at_those_addresses(const std::string& cause) const;
};

}  // namespace use_gpu::detail
