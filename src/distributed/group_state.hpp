// SPDX-License-Identifier: MIT
//
// The state of a Communicator, and the steps of each call: the ranks compare their calls, then run
// them; an error while running ends the group.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <exception>

#include "core/module_tensors/parameter_differences.hpp"
#include "distributed/rendezvous.hpp"
#include "distributed/wire_tensor.hpp"

namespace use_gpu::detail {

using Backend = c10::intrusive_ptr<c10d::Backend>;
using Work = c10::intrusive_ptr<c10d::Work>;

/// What the ranks compare before they send anything else.
struct Call {
  std::string text = {};              // what must agree of the call itself
  std::optional<Facts> network = {};  // what must agree of a network, if it is a call for one
  std::string choice = {};            // what may differ
};

/// What join() found and made.
struct Membership {
  c10::Device device;
  std::chrono::milliseconds timeout;
  int rank = 0;
  std::vector<Peer> peers = {{}};
  Backend gloo = {};          // in a group of one: null until first use
  Backend nccl = {};          // where each rank has a CUDA GPU
  Backend watched_nccl = {};  // beside it, once it was needed

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

  /// ArgumentError, which begins with the operation, if the group does not have this root.
  void check_root(const std::string& operation, int root) const;

  /// The first message of every call, small and always of the same size: with different sizes Gloo
  /// ends the process, with different dtypes values are wrong. The ranks compare what `prepare`
  /// returns; the result is whether all made the same choice. What `prepare` throws is thrown here
  /// once the others know. On every rank: ArgumentError unless all make the same call;
  /// ParameterError, which names each difference from rank 0, if networks differ, and on the other
  /// ranks where one cannot take part in a call for a network.
  bool compare(const std::string& operation, const std::function<Call()>& prepare);

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

  /// The work that `work` starts. If it cannot, the rank leaves, with a CommunicatorError.
  Work begin(const std::string& operation, const std::function<Work()>& work);
  /// Returns when that is done. If it fails, or its time is over, the same.
  void finish(const std::string& operation, const Work& work, bool on_nccl);
  /// The same for another error.
  [[noreturn]] void lose(const std::string& operation, const std::exception& error);

  std::string failure;  // why the group is no longer usable

 private:
  void throw_differences(const std::string& operation, const std::string& network);
};

}  // namespace use_gpu::detail
