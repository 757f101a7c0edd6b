// After the chapter: weights that Python trained. load_python_weights.py, beside this file, trains a
// network, y = sin(x), and saves its weights by Python's `safetensors`. Here a network with other
// names gets them, in place, on any device. What does not fit is an error, unless an option allows
// it.
// Look at: each tensor's name and device, and that the outputs are Python's.

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/parameter_file.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/tensor_file.hpp>

#include <filesystem>
#include <iostream>

int main(int argc, char** argv) {
  // The file that is named, or the one that lies beside the program.
  const std::filesystem::path program(argv[0]);
  const std::filesystem::path file =
      argc > 1 ? argv[1] : program.parent_path() / "load_python_weights.safetensors";
  torch::nn::Sequential net(torch::nn::Linear(1, 16), torch::nn::Tanh(), torch::nn::Linear(16, 1));
  use_gpu::place(net, use_gpu::try_gpu());

  // Python's names to ours. The file's input and output are no parameters: left out.
  const auto rename = [](const std::string& name) -> std::string {
    if (name.starts_with("hidden.")) return "0." + name.substr(7);
    if (name.starts_with("head.")) return "2." + name.substr(5);
    return "";
  };
  const auto report = use_gpu::load_parameters(net, file, {.rename = rename});
  std::cout << report.loaded.size() << " tensors loaded:\n" << use_gpu::placement(net);

  const torch::NoGradGuard no_grad;
  const auto example = use_gpu::load_tensors(file, use_gpu::try_gpu());
  const torch::Tensor x = example.at("input"), theirs = example.at("output"), y = net->forward(x);
  std::cout << "x, Python's output, ours:\n"
            << use_gpu::show(torch::cat({x, theirs, y}, 1)) << '\n';
  const bool is_same = (y - theirs).abs().max().item<float>() < 1e-6F;
  std::cout << (is_same ? "The outputs are the same to 1e-6.\n" : "The outputs differ.\n");
  return is_same ? 0 : 1;
}
