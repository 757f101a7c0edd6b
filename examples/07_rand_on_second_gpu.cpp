// Chapter cell "Y = rand(2, 3) on try_gpu(1)": a random tensor created on the second GPU.
// Look at: the device of Y. With fewer than two GPUs it is the CPU, and the program goes on.

#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/tensor.hpp>

#include <iostream>

int main() {
  torch::manual_seed(0);
  const c10::Device second = use_gpu::try_gpu(1);
  const torch::Tensor Y = torch::rand({2, 3}, second);
  std::cout << "Y =\n" << use_gpu::show(Y) << '\n';
}
