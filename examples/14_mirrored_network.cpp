// Chapter cell "with strategy.scope(): net = ..." (the TensorFlow edition; DJL keeps replicas too):
// one replica of the network on each GPU, with equal weights.
// Look at: the replicas see different data, but equal gradients, so their weights stay equal.

#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <use_gpu/device.hpp>
#include <use_gpu/parallel.hpp>
#include <use_gpu/replicas.hpp>
#include <use_gpu/tensor.hpp>

#include <iostream>

int main() {
  torch::manual_seed(0);
  auto devices = use_gpu::try_all_gpus();
  if (devices.size() < 2) {
    devices.resize(2, devices.front());
    std::cout << "Fewer than two GPUs: two replicas on " << devices.front() << " instead.\n";
  }
  const auto nets = use_gpu::mirror(devices, [] { return torch::nn::Linear(3, 1); });
  for (const auto& net : nets) std::cout << use_gpu::show(net->weight.detach()) << '\n';

  use_gpu::parallel_on(devices, [&](c10::Device device, std::size_t i) {
    auto net = nets.at(i);
    const torch::Tensor X = torch::full({2, 3}, static_cast<double>(i + 1), device);
    net->forward(X).square().mean().backward();
  });
  use_gpu::average_gradients(nets);
  std::cout << "After one step:\n";
  for (const auto& net : nets) {
    torch::optim::SGD(net->parameters(), /*lr=*/0.1).step();
    std::cout << use_gpu::show(net->weight.detach()) << '\n';
  }
}
