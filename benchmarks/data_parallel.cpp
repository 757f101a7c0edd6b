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

// The loss of the last step: the same whichever way the gradients were averaged.
template <class Forward, class Average>
double train(const char* name, int steps, const torch::nn::Sequential& net,
             use_gpu::Communicator& group, const Forward& forward, const Average& average) {
  torch::optim::SGD sgd(net->parameters(), /*lr=*/0.01);
  const auto x = torch::full({k_rows, k_width}, 1.0 + group.rank(), group.device());
  std::vector<double> microseconds;
  at::Tensor loss;
  for (int step = 0; step < steps; ++step) {
    use_gpu::synchronize(group.device());
    const auto start = std::chrono::steady_clock::now();
    sgd.zero_grad();
    loss = forward(x).square().mean();
    loss.backward();
    average();
    sgd.step();
    use_gpu::synchronize(group.device());
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    microseconds.push_back(took.count());
  }
  std::ranges::nth_element(microseconds, microseconds.begin() + steps / 2);
  if (group.rank() == 0 && group.device().is_cpu())
    std::printf("%s %.0f\n", name, microseconds[static_cast<std::size_t>(steps) / 2]);
  return loss.item<double>();
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::stoi(argv[1]) : 60;
  auto group = use_gpu::Communicator::join();
  const auto net = make_net(), copy = make_net();
  use_gpu::place(net, group.device());
  use_gpu::place(copy, group.device());
  use_gpu::DistributedDataParallel parallel(net, group);
  const double loss = train(
      "C++", steps, net, group, [&](const at::Tensor& x) { return parallel.forward(x); }, [] {});
  const double same = train(
      "average_gradients", steps, copy, group,
      [&](const at::Tensor& x) { return copy->forward(x); },
      [&] { use_gpu::average_gradients(copy, group); });
  if (group.rank() == 0) std::printf("loss %.6f\n", loss);
  if (std::abs(loss - same) <= 1e-5 * std::abs(same)) return EXIT_SUCCESS;
  std::fputs("data_parallel: WRONG RESULT\n", stderr);
  return EXIT_FAILURE;
}
