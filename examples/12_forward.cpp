// Chapter cell "net(X)": when the input is on the network's GPU, the result is computed there.
// Look at: the device of the result. Nothing was copied.

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/tensor.hpp>

#include <iostream>

int main() {
  torch::manual_seed(0);
  const c10::Device device = use_gpu::try_gpu();
  const torch::Tensor X = torch::ones({2, 3}, device);
  torch::nn::Sequential net(torch::nn::Linear(3, 1));
  use_gpu::place(net, device);

  std::cout << "X is " << use_gpu::describe(X) << '\n';
  std::cout << "net(X) =\n" << use_gpu::show(net->forward(X)) << '\n';
}
