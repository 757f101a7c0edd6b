// Chapter cell "net = Sequential(Linear(3, 1)); net.to(try_gpu())": a network on the first GPU.
// Look at: the device of each parameter.

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>

#include <iostream>

int main() {
  torch::nn::Sequential net(torch::nn::Linear(3, 1));
  std::cout << "Created:\n" << use_gpu::placement(net);
  use_gpu::place(net, use_gpu::try_gpu());
  std::cout << "Placed:\n" << use_gpu::placement(net);
}
