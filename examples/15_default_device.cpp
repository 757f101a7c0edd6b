// Chapter cell "with try_gpu(1): Y = ..." (the TensorFlow edition): where tensors are made by
// default.
// Look at: neither Y nor the network names a device, and nothing was copied to get them there.

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <use_gpu/default_device.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/transfers.hpp>

#include <iostream>

int main() {
  torch::manual_seed(0);
  const c10::Device second = use_gpu::try_gpu(1);
  if (use_gpu::num_gpus() < 2) std::cout << "There is no second GPU: " << second << " instead.\n";
  const use_gpu::TransferLedger ledger;
  {
    const use_gpu::DefaultDeviceGuard scope(second);
    const torch::Tensor Y = torch::rand({2, 3});
    const torch::nn::Sequential net(torch::nn::Linear(3, 1));
    std::cout << "Inside:  Y is " << use_gpu::describe(Y) << '\n' << use_gpu::placement(net);
  }
  std::cout << "Outside: a tensor is " << use_gpu::describe(torch::rand({2, 3})) << "\n\n"
            << ledger;
}
