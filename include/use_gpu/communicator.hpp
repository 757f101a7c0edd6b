// SPDX-License-Identifier: MIT
//
// The processes of one program, on one machine or on many, working together. LibTorch has the
// engine, c10d (Gloo between CPUs, NCCL between GPUs), but no way into it from C++ that reads what
// torchrun says, agrees on a backend, and ends with an error where a peer is missing:
//
//   auto group = use_gpu::Communicator::join();          // each process calls it once
//   use_gpu::broadcast_parameters(net, group);           // all start from rank 0's values
//   loss.backward();
//   use_gpu::average_gradients(net, group);              // and step alike
//
//   torchrun --standalone --nproc-per-node 2 --no-python ./program    // alone: a group of one
//
// The calls are collective: every rank makes the same ones in the same order, from one thread at a
// time, with tensors of the same shape and dtype, all on their group.device() or all elsewhere.
// c10d does not check: where they differ it ends the process or gives nonsense. Here the ranks first
// compare the calls that they are about to make, in one message of 56 bytes; if these differ, every
// rank gets an ArgumentError and the group goes on. Loops of tiny calls that cannot afford that have
// backend().
//
// c10d neither encrypts nor asks who connects: use it on loopback or in a network that you trust
// (docs/several_machines.md).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/export.hpp>
#include <use_gpu/module_ref.hpp>

#include <chrono>
#include <memory>
#include <string>

namespace USE_GPU_EXPORT c10d {
class Backend;  // visible, as in LibTorch
}

namespace use_gpu::detail {
class GroupState;
}

namespace USE_GPU_EXPORT use_gpu {

/// A group that cannot be joined, or that has lost a member. Names the address, and the ranks as
/// far as c10d tells.
class CommunicatorError : public Error {
 public:
  /// From a message, cut to 400 characters, without a backtrace.
  explicit CommunicatorError(const std::string& message);
};

/// What becomes of the values of all ranks; `mean` is the sum divided by the number of ranks.
enum class ReduceOp { sum, mean, min, max };

class Communicator;

/// The root's parameters and buffers for the network of every rank, in place and in few large
/// messages. ParameterError on every rank, and nothing has changed, if the networks differ in names,
/// shapes, dtypes or devices, or hold tensors that are not strided; ArgumentError for a root outside
/// 0 to size() - 1, or not the same on all ranks.
void broadcast_parameters(ModuleRef net, Communicator& group, int root = 0);

/// After backward on every rank: the mean of each gradient over the ranks, in few large messages: one
/// to compare, then one for each 64 MB. Where only some ranks have a gradient the others count as zero
/// and get it too. Frozen parameters are left alone. ParameterError on every rank, and nothing has
/// changed, if the networks differ or a gradient is sparse. A rank that fails later, for want of
/// memory, leaves the group, and the others get a CommunicatorError.
void average_gradients(ModuleRef net, Communicator& group);

/// This process's place in the group. Move-only. Leaving (the destructor) waits for nobody; with
/// NCCL for its peers, 10 seconds at most.
///
/// Every call returns when all ranks have done their part, on a GPU too; only the last step (a
/// division, a copy into x) is queued on the current stream. A peer that dies is therefore an error
/// here: CommunicatorError at once if its connection closes, otherwise when a step has made no
/// progress for the time-out given to join. Afterwards the tensors in flight are unspecified and
/// every further call is refused; start a new process (torchrun --max-restarts).
class Communicator {
 public:
  /// Joins the group that torchrun describes in RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
  /// MASTER_PORT; with none of them in the environment, a group of one, which needs no network.
  /// Binds to the local address from which MASTER_ADDR is reached. GPU tensors travel by NCCL if
  /// each rank has a CUDA GPU of its own, otherwise all do by Gloo, through host memory.
  /// ArgumentError for a variable that is missing or malformed, DeviceError for a LOCAL_RANK past
  /// the GPUs of a machine that has some, CommunicatorError if a rank does not come in time.
  [[nodiscard]] static Communicator join(
      std::chrono::milliseconds timeout = std::chrono::minutes(5));

  ~Communicator();
  /// Afterwards `other` can only be assigned to or destroyed.
  Communicator(Communicator&& other) noexcept;
  /// As above; this group is left.
  Communicator& operator=(Communicator&& other) noexcept;

  /// Of this process in the group, 0 to size() - 1.
  [[nodiscard]] int rank() const noexcept;
  /// How many processes the group has.
  [[nodiscard]] int size() const noexcept;
  /// This process's own: gpu(LOCAL_RANK), or the CPU where the machine has no GPU.
  [[nodiscard]] c10::Device device() const noexcept;

  /// In place, for strided tensors of any device, contiguous or not; all ranks get the same bits.
  /// Nothing is recorded by autograd. float16 and bfloat16 are added up in float32 and rounded
  /// once; integers wrap around; bool has min and max only. Which of a number and a NaN is the
  /// min or max is not specified. ArgumentError for a mean of integers, min or max of complex
  /// numbers, other dtypes, and an undefined, sparse or self-overlapping x.
  void all_reduce(const at::Tensor& x, ReduceOp how = ReduceOp::sum);

  /// The root's values, of any dtype, for x on every rank, in place and as all_reduce otherwise.
  /// ArgumentError for a root outside 0 to size() - 1.
  void broadcast(const at::Tensor& x, int root = 0);

  /// Waits until all ranks have come here.
  void barrier();

  /// The backend underneath, for c10d's other collectives: ProcessGroupNCCL or ProcessGroupGloo.
  /// Include torch/csrc/distributed/c10d/Backend.hpp to use it.
  [[nodiscard]] c10::intrusive_ptr<c10d::Backend> backend();

 private:
  friend void average_gradients(ModuleRef net, Communicator& group);
  friend void broadcast_parameters(ModuleRef net, Communicator& group, int root);
  explicit Communicator(std::unique_ptr<detail::GroupState> state);
  std::unique_ptr<detail::GroupState> state_;
};

}  // namespace use_gpu
