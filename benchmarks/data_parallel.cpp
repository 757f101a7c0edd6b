// SPDX-License-Identifier: MIT
//
// What a training step takes in a group of processes, by DistributedDataParallel and by
// average_gradients: the same as data_parallel.py, which scripts/bench runs in turn with it. Prints the
// name of each and the median of its microseconds, on the CPU.
//
//   torchrun --standalone --nproc-per-node 2 --no-python data_parallel [STEPS]
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <use_gpu/communicator.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/distributed_data_parallel.hpp>
#include <use_gpu/network.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr int k_layers = 50, k_width = 256, k_rows = 32;

torch::nn::Sequential make_net() {
  torch::nn::Sequential net;
  for (int i = 0; i < k_layers; ++i) {
    net->push_back(torch::nn::Linear(k_width, k_width));
    if (i + 1 < k_layers) net->push_back(torch::nn::Tanh());
  }
  const at::NoGradGuard no_grad;
  for (const auto& p : net->parameters())
    p.copy_(torch::linspace(-0.1, 0.1, p.numel()).sin().view(p.sizes()));
  return net;
}

// One way to train: a network of its own, and what each step took.
struct Way {
  std::string name;
  torch::nn::Sequential net;
  torch::optim::SGD sgd{net->parameters(), /*lr=*/0.01};
  std::vector<double> microseconds = {};
  double loss = 0;

  template <class Forward, class Average>
  void step(use_gpu::Communicator& group, const Forward& forward, const Average& average) {
    const auto x = torch::full({k_rows, k_width}, 1.0 + group.rank(), group.device());
    group.barrier();
    use_gpu::synchronize(group.device());
    const auto start = std::chrono::steady_clock::now();
    sgd.zero_grad();
    const auto mean = forward(x).square().mean();
    mean.backward();
    average();
    sgd.step();
    use_gpu::synchronize(group.device());
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    microseconds.push_back(took.count());
    loss = mean.template item<double>();
  }

  void print() {
    const auto middle = microseconds.begin() + std::ssize(microseconds) / 2;
    std::ranges::nth_element(microseconds, middle);
    std::printf("%s %.0f\n", name.c_str(), *middle);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::stoi(argv[1]) : 60;
  auto group = use_gpu::Communicator::join();
  auto net = make_net(), other = make_net();
  for (auto& x : {net, other}) use_gpu::place(x, group.device());
  use_gpu::DistributedDataParallel parallel(net, group);
  Way ours{"C++", net}, by_hand{"average_gradients", other};
  for (int step = 0; step < steps; ++step) {  // in turn, so that other load affects both
    ours.step(
        group, [&](const at::Tensor& x) { return parallel.forward(x); }, [] {});
    by_hand.step(
        group, [&](const at::Tensor& x) { return other->forward(x); },
        [&] { use_gpu::average_gradients(other, group); });
  }
  if (std::abs(ours.loss - by_hand.loss) > 1e-5 * by_hand.loss) {
    std::fputs("data_parallel: WRONG RESULT\n", stderr);
    return EXIT_FAILURE;
  }
  if (group.rank() > 0) return EXIT_SUCCESS;
  if (group.device().is_cpu()) {
    ours.print();
    by_hand.print();
  }
  std::printf("loss %.6f\n", ours.loss);
}
