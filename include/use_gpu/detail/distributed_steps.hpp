// SPDX-License-Identifier: MIT
//
// The steps of DistributedDataParallel (distributed_data_parallel.hpp) that are the same for all
// networks. Nothing to call.
#pragma once

#include <use_gpu/communicator.hpp>

namespace use_gpu {
struct DistributedOptions;
}

namespace use_gpu::detail {

/// What DistributedDataParallel does, for networks of any type.
class USE_GPU_EXPORT DistributedSteps {
 public:
  DistributedSteps(ModuleRef net, Communicator& group, const DistributedOptions& options);
  ~DistributedSteps();

  void before_forward();
  /// So that no rank waits for this one's gradients.
  void forward_failed() noexcept;
  /// Takes the tensors of the output where it needs them, and gives those to return instead.
  /// `are_all`: the output has nothing else that could hold a tensor.
  std::vector<at::Tensor> after_forward(const std::vector<at::Tensor>& outputs,
                                        bool are_all = true);
  [[nodiscard]] bool needs_outputs() const;
  /// Returns the previous value.
  bool set_exchanging(bool exchanges);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace use_gpu::detail
