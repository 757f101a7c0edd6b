// SPDX-License-Identifier: MIT
//
// average_gradients of 1,000 small parameters beside 1,000 all-reduces, ours (which compare the
// calls first) and c10d's own, in one run:
//
//   torchrun --standalone --nproc-per-node 2 --no-python communicator_benchmark
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <use_gpu/communicator.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "timing/timing.hpp"

namespace {

constexpr int k_rounds = 15;
using Times = std::vector<double>;

template <class Work>
void measure(use_gpu::Communicator& group, Times& milliseconds, const Work& work) {
  group.barrier();
  const auto start = std::chrono::steady_clock::now();
  work();
  use_gpu::synchronize(group.device());
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  milliseconds.push_back(took.count());
}

void print(const char* what, Times times) {
  std::sort(times.begin(), times.end());
  std::cout << what << ": median " << times[k_rounds / 2] << " ms, " << times.front() << " to "
            << times.back() << '\n';
}

}  // namespace

int main() {
  auto group = use_gpu::Communicator::join();
  const auto backend = group.backend();
  torch::nn::Module net;
  std::vector<at::Tensor> gradients;
  for (int i = 0; i < 1000; ++i) {
    auto& parameter = net.register_parameter("p" + std::to_string(i), torch::zeros({64}));
    parameter.mutable_grad() = torch::full({64}, 1.0 * group.rank());
  }
  use_gpu::place(net, group.device());
  for (const auto& parameter : net.parameters()) gradients.push_back(parameter.grad());

  Times together, single, bare;
  for (int round = 0; round < k_rounds + 1; ++round) {
    measure(group, together, [&] { use_gpu::average_gradients(net, group); });
    measure(group, single, [&] {
      for (const auto& x : gradients) group.all_reduce(x, use_gpu::ReduceOp::mean);
    });
    if (!is_simulated(group.device())) {
      measure(group, bare, [&] {
        for (const auto& x : gradients) {
          std::vector<at::Tensor> tensors{x / group.size()};
          const auto work = backend->allreduce(tensors);
          while (!work->isCompleted()) std::this_thread::yield();  // wait() sleeps 1 ms with NCCL
          work->wait();
        }
      });
    }
    for (const auto& x : gradients) {
      if (!x.eq((group.size() - 1) / 2.0).all().item<bool>())
        throw std::runtime_error("wrong mean");
    }
    if (round == 0) together.clear(), single.clear(), bare.clear();  // warmed up
  }
  if (group.rank() > 0) return 0;
  std::cout << group.size() << " processes on " << label(group.device()) << ", "
            << backend->getBackendName() << ", LibTorch " << TORCH_VERSION
            << ", 1,000 float32[64]\n";
  print("average_gradients", together);
  print("1,000 all_reduces", single);
  if (!bare.empty()) print("1,000 of c10d's", bare);
}
