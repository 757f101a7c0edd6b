// Chapter cell "net[0].weight.data.device": the parameters of a placed network live on its device.
// Look at: weight and bias, and the device of the whole network.

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>

#include <iostream>

int main() {
  torch::nn::Sequential net(torch::nn::Linear(3, 1));
  use_gpu::place(net, use_gpu::try_gpu());

  const auto& linear = net->at<torch::nn::LinearImpl>(0);
  std::cout << "net[0].weight  " << linear.weight.device() << '\n'
            << "net[0].bias    " << linear.bias.device() << '\n'
            << "whole network  " << use_gpu::placement(net).single_device() << '\n';
}
