// SPDX-License-Identifier: MIT
//
// Trains one network in several processes, each with its part of every batch: in the backward pass the
// gradients of one bucket of parameters are averaged over all ranks while the rest is still computed.
// Python's DistributedDataParallel, on the same engine (c10d::Reducer), to the same bits:
//
//   auto group = use_gpu::Communicator::join();
//   use_gpu::place(net, group.device());
//   use_gpu::DistributedDataParallel parallel(net, group);    // starts from rank 0's values
//   ...
//   criterion(parallel.forward(x), y).backward();             // equal gradients on all ranks
//   sgd.step();
//
// average_gradients(net, group) does the same after the backward pass, for loops that run several
// forward passes or none before it.
#pragma once

#include <use_gpu/communicator.hpp>
#include <use_gpu/detail/distributed_steps.hpp>
#include <use_gpu/detail/each_tensor.hpp>
#include <use_gpu/errors.hpp>

#include <cstdint>

namespace USE_GPU_EXPORT use_gpu {

/// What DistributedDataParallel does in each step; the same on all ranks.
struct DistributedOptions {
  /// A bucket of gradients is sent once it has this many bytes; unset, as in Python: 25 MiB, the
  /// first one 1 MiB.
  std::optional<std::uint64_t> bucket_bytes = {};
  /// A forward pass may leave parameters out, on each rank other ones. Costs a search through the
  /// graph in each step.
  bool find_unused_parameters = false;
  /// Before each forward pass all ranks get rank 0's buffers (BatchNorm's statistics). When it is made
  /// they do in any case.
  bool broadcast_buffers = true;
};

/// A network whose gradients are equal on all ranks after each backward pass. Neither copied nor
/// moved; the Communicator outlives it. In a group of one it is the network alone.
///
/// A forward pass that records gradients is followed by one backward pass before the next one, and
/// all ranks do the same: of two forward passes and then two backward passes only the first is
/// averaged, silently, as in Python. Parameters that are frozen when it is made are left alone;
/// buffers are those of that time. Gradients travel in their own dtype: bfloat16 is summed in
/// bfloat16, as in Python.
///
/// Waits: the constructor and the second forward pass for all ranks; with Gloo forward() for rank 0's
/// buffers too, and backward(). With NCCL these queue; but with find_unused_parameters backward()
/// copies a flag for each parameter to the GPU and may wait for it: a TransferGuard needs an
/// AllowTransfers around it. With NCCL the first DistributedDataParallel of a group makes a second NCCL
/// communicator, which takes some of the GPU's memory.
///
/// Throws: with Gloo forward() and backward() throw CommunicatorError if a rank has died, left or is
/// too late. With NCCL c10d's watchdog ends the process about a minute after the time-out, with a
/// line that names the rank, as in Python. A rank whose forward() throws leaves the group.
///
/// Threads: one at a time.
template <ModuleHandle Net>
class DistributedDataParallel {
 public:
  /// Copies rank 0's parameters and buffers to all.
  ///
  /// Throws: on every rank, and nothing has changed: ParameterError if the networks differ, also in
  /// the order of their parameters or in what is frozen, with what differs between which ranks in
  /// differences(), for gradients that cannot be sent, and for an expanded parameter or buffer;
  /// ArgumentError if the options differ or nothing is to be trained; DeviceMismatch if the network is
  /// not on group.device(). Where one rank alone throws, the others get a ParameterError.
  /// CommunicatorError if a rank dies or is too late.
  DistributedDataParallel(Net net, Communicator& group, DistributedOptions options = {})
      : net_(std::move(net)), steps_(net_, group, options) {}

  /// net->forward(args...), in inference and evaluation too.
  ///
  /// Throws: ParameterError, with the names in differences(), if parameters had no part in the last
  /// step and find_unused_parameters is false, or if the network has another device, dtype or shape by
  /// now; ArgumentError if find_unused_parameters is true and the output has no tensor, or a
  /// type that batch.hpp does not list. This rank has left the group then; what the others get is
  /// said above.
  template <class... Args>
  auto forward(Args&&... args) {
    try {
      steps_.before_forward();
      auto output = net_->forward(std::forward<Args>(args)...);
      if (!steps_.needs_outputs()) {
        steps_.after_forward({});
        return output;
      }
      std::vector<at::Tensor> tensors;
      bool are_all = true;
      static_cast<void>(detail::with_each_tensor(output, [&]<class T>(const T& x) -> T {
        if constexpr (std::same_as<T, at::Tensor>)
          tensors.push_back(x);
        else
          are_all = false;
        return x;
      }));
      const auto replaced = steps_.after_forward(tensors, are_all);
      auto next = replaced.begin();
      return detail::with_each_tensor(output, [&](const at::Tensor&) { return *next++; });
    } catch (...) {
      steps_.forward_failed();
      throw;
    }
  }

  /// The network itself.
  [[nodiscard]] const Net& module() const { return net_; }

  /// While it lives gradients are accumulated on this rank alone. Restores what was before.
  class NoSync {
   public:
    /// As no_sync() does.
    explicit NoSync(DistributedDataParallel& parallel)
        : steps_(parallel.steps_), before_(steps_.set_exchanging(false)) {}
    ~NoSync() { steps_.set_exchanging(before_); }
    NoSync(const NoSync&) = delete;

   private:
    detail::DistributedSteps& steps_;
    bool before_;
  };

  /// Of several backward passes before one step of the optimizer all but the last belong in its
  /// scope, with their forward passes: `{ const auto alone = parallel.no_sync(); ... }`.
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

 private:
  Net net_;
  detail::DistributedSteps steps_;
};

}  // namespace use_gpu
