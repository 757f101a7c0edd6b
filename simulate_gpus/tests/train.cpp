// SPDX-License-Identifier: MIT
//
// A typical program that does not use or know use_gpu or simulated GPUs: it trains a convolutional
// network on the GPU where there is one, and prints its losses.
#include <torch/torch.h>

#include <chrono>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <vector>

namespace {

// Stripes, horizontal or vertical, under noise.
struct Stripes : torch::data::datasets::Dataset<Stripes> {
  torch::data::Example<> get(std::size_t index) override {
    const auto row = static_cast<std::int64_t>(index);
    return {images[row], labels[row]};
  }
  torch::optional<std::size_t> size() const override {
    return static_cast<std::size_t>(images.size(0));
  }

  torch::Tensor labels = torch::randint(2, {512}, torch::kLong);
  torch::Tensor images = torch::randn({512, 1, 28, 28}).mul_(0.5) + stripes();

 private:
  torch::Tensor stripes() const {
    const torch::Tensor wave = torch::arange(28).mul(0.9).sin();
    const torch::Tensor both =
        torch::stack({wave.expand({28, 28}), wave.unsqueeze(1).expand({28, 28})});
    return both.index_select(0, labels).unsqueeze(1);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 2;
  torch::manual_seed(1);
  const torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);
  torch::nn::Sequential net(
      torch::nn::Conv2d(1, 16, 3), torch::nn::BatchNorm2d(16), torch::nn::ReLU(),
      torch::nn::MaxPool2d(2), torch::nn::Conv2d(16, 32, 3), torch::nn::ReLU(),
      torch::nn::MaxPool2d(2), torch::nn::Flatten(), torch::nn::Linear(800, 2));
  net->to(device);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
  const auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Stripes().map(torch::data::transforms::Stack<>()), 64);
  const auto start = std::chrono::steady_clock::now();
  std::cout << "device " << device << std::setprecision(9);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (const auto& batch : *loader) {
      optimizer.zero_grad();
      const torch::Tensor loss =
          torch::cross_entropy_loss(net->forward(batch.data.to(device)), batch.target.to(device));
      loss.backward();
      optimizer.step();
      std::cout << "\nloss " << loss.item<double>();
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::cout << "\nseconds " << seconds.count() << '\n';
}
