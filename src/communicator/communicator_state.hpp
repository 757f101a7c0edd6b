// SPDX-License-Identifier: MIT
//
// What a Communicator holds, and how each of its calls goes: the ranks compare what they are about
// to do, then do it, and an error on the way is the end of the group.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <use_gpu/communicator.hpp>

#include <functional>

#include "communicator/rendezvous.hpp"

namespace use_gpu {

struct Communicator::State {
  explicit State(c10::Device own) : device(own) {}
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// NCCL takes what is on the GPU that the others know of.
  [[nodiscard]] bool by_nccl(const at::Tensor& x) const;

  /// What a rank does before a call. If that throws, the others hear of it when they compare.
  void prepare(const std::string& operation, const std::function<void()>& work);

  /// ArgumentError on every rank unless all make the same call. For messages of different sizes
  /// Gloo ends the process, for different dtypes it answers nonsense.
  void compare(const std::string& operation, const std::string& call);

  /// Runs one collective to its end; CommunicatorError, and no more calls, where it fails.
  using Start = std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend&)>;
  void run(const std::string& operation, bool on_nccl, const Start& start);

  int rank = 0;
  int size = 1;
  c10::Device device;
  std::chrono::milliseconds timeout{};
  std::vector<Peer> peers;
  c10::intrusive_ptr<c10d::Backend> gloo;  // none in a group of one until somebody asks
  c10::intrusive_ptr<c10d::Backend> nccl;  // where each rank has a CUDA GPU
  std::string failure;                     // why the group is no longer usable

 private:
  [[noreturn]] void give_up(const std::string& operation, const std::string& cause);
  [[nodiscard]] std::string at_those_addresses(const std::string& cause) const;
};

}  // namespace use_gpu
