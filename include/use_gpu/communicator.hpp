// SPDX-License-Identifier: MIT
//
// Lets several processes, on one machine or many, work together. They use LibTorch's c10d (Gloo
// between CPUs, NCCL between GPUs). In C++ c10d does not read torchrun's variables, choose a
// backend or report a missing peer; Communicator does:
//
//   auto group = use_gpu::Communicator::join();          // each process calls it once
//   use_gpu::broadcast_parameters(net, group);           // all start from rank 0's values
//   loss.backward();
//   use_gpu::average_gradients(net, group);              // equal steps
//
//   torchrun --standalone --nproc-per-node 2 --no-python ./program    // without it: one rank
//
// The calls are collective: every rank makes the same ones in the same order, from one thread at a
// time, with tensors of the same shape and dtype, all on their group.device() or all elsewhere.
// c10d does not check this: on a mismatch it ends the process or returns wrong values. Here the
// ranks first compare their calls, in one message of 56 bytes; on a mismatch every rank gets an
// ArgumentError and the group stays usable. If that is too slow for many tiny calls, use backend().
//
// c10d has no encryption and no authentication: use it on loopback or in a trusted network
// (docs/several_machines.md).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/module_ref.hpp>

#include <chrono>
#include <memory>

namespace USE_GPU_EXPORT c10d {
class Backend;  // visible, as in LibTorch
}

namespace use_gpu::detail {
class GroupState;
class USE_GPU_EXPORT DistributedSteps;
}  // namespace use_gpu::detail

namespace USE_GPU_EXPORT use_gpu {
/// The group cannot be joined, or has lost a member. Names the address, and the ranks that c10d
/// reports.
class CommunicatorError : public Error {
 public:
  /// what() gives this message and no backtrace.
  using Error::Error;
};

/// How the values of all ranks are combined; `mean` is the sum divided by their number.
enum class ReduceOp { sum, mean, min, max };

class Communicator;

/// Copies the root's parameters and buffers to every rank's network, in place, in few messages.
///
/// Waits: for all ranks.
///
/// Throws: on every rank, and nothing has changed: ParameterError if the networks differ in names,
/// shapes, dtypes or devices, or hold tensors that are not strided; ArgumentError for a root
/// outside 0 to size() - 1, or not the same on all ranks. A rank that runs out of memory after this
/// comparison leaves the group, and the others get a CommunicatorError; the values are then
/// unspecified.
void broadcast_parameters(ModuleRef net, Communicator& group, int root = 0);

/// To be called on every rank after backward: averages each gradient over the ranks. Sends one or
/// two small messages to compare, then one per 64 MB. If only some ranks have a gradient, the
/// others count as zero and get it too. Frozen parameters are left alone.
///
/// Waits: for all ranks.
///
/// Throws: ParameterError on every rank, and nothing has changed, if the networks or the dtypes of
/// their gradients differ, or a gradient is sparse. Out of memory after this comparison: as
/// broadcast_parameters, but the others may get the error in their next call.
void average_gradients(ModuleRef net, Communicator& group);

/// This process's membership of a group. Move-only. With Gloo the destructor leaves without
/// waiting; with NCCL it waits for peers, at most 10 s.
///
/// Every call returns when all ranks have done their part, on a GPU too; only the last step (a
/// division, a copy into x) is queued on the current stream. If a peer dies, the call therefore
/// throws CommunicatorError: usually at once, as c10d notices the closed connection (Gloo did in 200
/// of 200 runs), at the latest after the time-out of join without progress, with Gloo at most 5 s
/// later. Afterwards the tensors in flight are unspecified and every further call is refused; start
/// a new process (torchrun --max-restarts).
class Communicator {
 public:
  /// Joins the group that torchrun describes in RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
  /// MASTER_PORT; if none of them is set, the group is one rank and needs no network. Binds to the
  /// local address from which MASTER_ADDR is reached. GPU tensors use NCCL if each rank has its own
  /// CUDA GPU; otherwise all use Gloo, through host memory.
  ///
  /// Waits: for all ranks.
  ///
  /// Throws: ArgumentError for a variable that is missing or malformed, DeviceError if there are
  /// GPUs but none for LOCAL_RANK, CommunicatorError if a rank does not join in time or if its only
  /// GPU is another rank's too.
  [[nodiscard]] static Communicator join(
      std::chrono::milliseconds timeout = std::chrono::minutes(5));

  /// Afterwards `other` can only be assigned to or destroyed.
  Communicator(Communicator&& other) noexcept = default;
  /// As above; leaves this group.
  Communicator& operator=(Communicator&& other) noexcept = default;

  /// The rank of this process, 0 to size() - 1.
  [[nodiscard]] int rank() const noexcept;
  /// How many processes the group has.
  [[nodiscard]] int size() const noexcept;
  /// This process's device: gpu(LOCAL_RANK); gpu(0) if a launcher shows each process only a GPU of
  /// its own; the CPU if there is no GPU.
  [[nodiscard]] c10::Device device() const noexcept;

  /// Reduces x in place. x is strided, on any device, contiguous or not. All ranks get equal bits.
  /// Not recorded by autograd. float16 and bfloat16 are summed in float32 and rounded once;
  /// integers wrap around; bool has min and max only. The min or max of a number and a NaN is
  /// unspecified.
  ///
  /// Waits: for all ranks.
  ///
  /// Throws: ArgumentError for a mean of integers, min or max of complex numbers, other dtypes, and
  /// an undefined, sparse or self-overlapping x.
  void all_reduce(const at::Tensor& x, ReduceOp how = ReduceOp::sum);

  /// Copies the root's values, of any dtype that is not quantized, to x on every rank; otherwise as
  /// all_reduce.
  ///
  /// Waits: for all ranks.
  ///
  /// Throws: ArgumentError for a root outside 0 to size() - 1.
  void broadcast(const at::Tensor& x, int root = 0);

  /// Returns when all ranks have called it.
  ///
  /// Waits: for all ranks.
  void barrier();

  /// The backend underneath, for c10d's other collectives: ProcessGroupNCCL or ProcessGroupGloo.
  /// Include torch/csrc/distributed/c10d/Backend.hpp to use it.
  [[nodiscard]] c10::intrusive_ptr<c10d::Backend> backend();

 private:
  friend void average_gradients(ModuleRef net, Communicator& group);
  friend void broadcast_parameters(ModuleRef net, Communicator& group, int root);
  friend class detail::DistributedSteps;
  explicit Communicator(std::shared_ptr<detail::GroupState> state);
  std::shared_ptr<detail::GroupState> state_;  // not shared, but incomplete here
};

}  // namespace use_gpu
