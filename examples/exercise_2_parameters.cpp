// Exercise 2, "How should we read and write model parameters on the GPU?": read them in one go into
// host memory, compute on the device, and write them in place, so that the network does not move
// and its optimizer goes on working. Do not loop over single values: each costs a transfer and a
// wait, whereas read_parameters and write_parameters move a thousand small tensors at once. Files
// hold host copies and are loaded in place too, so what was saved on one device loads on any other.
// Look at: both networks have the same values, each on its own device.

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/parameter_file.hpp>
#include <use_gpu/parameters.hpp>
#include <use_gpu/tensor.hpp>

#include <iostream>

int main() {
  torch::nn::Sequential net(torch::nn::Linear(3, 1)), other(torch::nn::Linear(3, 1));
  use_gpu::place(net, use_gpu::try_gpu(0));
  use_gpu::place(other, use_gpu::try_gpu(1));
  use_gpu::write_parameters(net, {{"0.weight", torch::tensor({{1.F, 2.F, 3.F}})}});

  torch::Tensor weight = use_gpu::read_parameters(net).at("0.weight");
  std::cout << "Read:\n" << use_gpu::show(weight) << '\n';
  weight = use_gpu::to_device(weight, use_gpu::try_gpu()) * 2;
  std::cout << "Changed:\n" << use_gpu::show(weight) << '\n';
  use_gpu::write_parameters(net, {{"0.weight", weight}});

  const std::string file = "/tmp/exercise_2-" + std::to_string(::getpid()) + ".safetensors";
  use_gpu::save_parameters(net, file);
  use_gpu::load_parameters(other, file);
  ::unlink(file.c_str());
  std::cout << "Written to net:\n" << use_gpu::show(net->parameters()[0].detach()) << '\n';
  std::cout << "Loaded into other:\n" << use_gpu::show(other->parameters()[0].detach()) << '\n';
  const auto ours = use_gpu::read_parameters(net), theirs = use_gpu::read_parameters(other);
  std::cout << "The biases are the same: " << std::boolalpha
            << ours.at("0.bias").equal(theirs.at("0.bias")) << '\n';
}
