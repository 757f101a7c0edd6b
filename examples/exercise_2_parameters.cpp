// Exercise 2, "How should we read and write model parameters on the GPU?": first as LibTorch does it,
// then by the library. Read them in one go into host memory, and write them in place, so that the
// network does not move and its optimizer goes on working. Do not loop over single values: each costs a
// transfer and a wait, whereas read_parameters and write_parameters move a thousand small tensors at
// once. A file that was saved on one device loads on any other.
// Look at: both networks have the same values, each on its own device.

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/parameter_file.hpp>
#include <use_gpu/parameters.hpp>
#include <use_gpu/tensor.hpp>

#include <filesystem>
#include <iostream>
#include <random>

int main() {
  torch::nn::Sequential net(torch::nn::Linear(3, 1)), other(torch::nn::Linear(3, 1));
  use_gpu::place(net, use_gpu::try_gpu(0));
  use_gpu::place(other, use_gpu::try_gpu(1));
  if (use_gpu::num_gpus() < 2)
    std::cout << "There is no second GPU: " << use_gpu::try_gpu(1) << " instead.\n";

  const auto& linear = net->at<torch::nn::LinearImpl>(0);
  {
    const torch::NoGradGuard no_grad;  // writing is no step that a gradient flows through
    linear.weight.copy_(torch::tensor({{1.F, 2.F, 3.F}}));
  }
  std::cout << "One value by LibTorch: " << linear.weight[0][1].item<float>() << "\nAll:\n"
            << use_gpu::show(linear.weight.detach().cpu()) << '\n';

  torch::Tensor weight = use_gpu::read_parameters(net).at("0.weight");
  use_gpu::write_parameters(net, {{"0.weight", weight * 2}});
  std::cout << "Read, doubled and written by the library:\n"
            << use_gpu::show(linear.weight.detach()) << '\n';

  const auto file = std::filesystem::temp_directory_path() / std::to_string(std::random_device()());
  use_gpu::save_parameters(net, file);
  use_gpu::load_parameters(other, file);
  std::filesystem::remove(file);
  const auto ours = use_gpu::read_parameters(net), theirs = use_gpu::read_parameters(other);
  std::cout << "Loaded into other:\n"
            << use_gpu::show(other->parameters()[0].detach())
            << "\nThe biases are the same: " << std::boolalpha
            << ours.at("0.bias").equal(theirs.at("0.bias")) << '\n';
}
