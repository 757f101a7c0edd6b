// SPDX-License-Identifier: MIT
//
// The state of a Communicator, and the steps of each call: the ranks compare their calls, then run
// them; an error while running ends the group.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <use_gpu/communicator.hpp>

#include <exception>
#include <functional>

#include "distributed/rendezvous.hpp"
#include "distributed/wire_tensor.hpp"

namespace use_gpu::detail {

using Backend = c10::intrusive_ptr<c10d::Backend>;

/// What the comparison found.
struct CallComparison {
  bool same_network, same_choice;
  int refusing_rank;  // the highest; -1 if none refuses
};

/// What join() found and made.
struct Membership {
  c10::Device device;
  std::chrono::milliseconds timeout;
  int rank = 0;
  std::vector<Peer> peers = {{}};
  Backend gloo = {};  // in a group of one: null until first use
  Backend nccl = {};  // where each rank has a CUDA GPU

  [[nodiscard]] int size() const { return static_cast<int>(peers.size()); }
  [[nodiscard]] const Peer& self() const { return peers[static_cast<std::size_t>(rank)]; }
};

class GroupState : public Membership {
 public:
  explicit GroupState(Membership own) : Membership(std::move(own)) {}
  ~GroupState();
  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;

  /// A whole call: x is checked, the calls are compared, x is sent. What Communicator says of it.
  void call(const std::string& operation, const at::Tensor& x, Collective what);

  /// The first message of every call, small and always of the same size: with different sizes Gloo
  /// ends the process, with different dtypes values are wrong. ArgumentError on every rank unless
  /// all make the same call; the caller checks the rest. `network` has for each tensor its name, a
  /// zero, what has to agree, a zero.
  CallComparison compare_calls(const std::string& operation, const std::string& call,
                               const std::string& network = {}, const std::string& choice = {},
                               bool refuses = false);

  /// So that the others get an error too where this rank throws before the comparison.
  void refuse(const std::string& operation);

  /// compare_calls, and ParameterError on every rank if the networks differ: it begins with `what` and
  /// names each difference from rank 0. If one rank has an error of its `own`, that is thrown there,
  /// and a ParameterError on the others. Returns whether all made the same choice.
  bool compare_networks(const std::string& operation, const std::string& call,
                        const std::string& network, const std::string& what,
                        const std::exception_ptr& own, const std::string& choice = {});

  /// What a rank does once the calls are compared; nothing in a group of one. If it throws, the rank
  /// leaves, so that none waits.
  void take_part(const std::string& operation, const std::function<void()>& work);

  /// x in place, once the calls are compared: in a message of its own, which is to_wire(x).
  void send(const std::string& operation, const at::Tensor& wire, const at::Tensor& x,
            Collective what);

  /// Whether x is sent by NCCL: only if it is on this rank's own GPU.
  [[nodiscard]] bool by_nccl(const at::Tensor& x) const { return nccl && x.device() == device; }

  /// "all_reduce on rank 1 of 2 failed: Connection closed by peer [127.0.0.1] (there: rank 0)".
  [[nodiscard]] std::string failure_text(const std::string& operation,
                                         const std::string& cause) const;

  /// Closes the connections, so that the other ranks, which may wait for this one, notice at once.
  void leave(const std::string& why);

  /// CommunicatorError if the group is no longer usable.
  void throw_if_lost(const std::string& operation) const;

  /// Returns when the work is done, which `operation` started. If it fails, or its time is over, the
  /// rank leaves, with a CommunicatorError.
  void finish(const std::string& operation, const c10::intrusive_ptr<c10d::Work>& work,
              bool on_nccl);
  /// The same for what could not even be started.
  [[noreturn]] void lose(const std::string& operation, const std::exception& error);

  std::string failure;  // why the group is no longer usable

 private:
  void throw_differences(const std::string& operation, const std::string& what,
                         const std::string& network);
};

}  // namespace use_gpu::detail
