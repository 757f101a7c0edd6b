// Chapter cell "def __init__(self, max_epochs, num_gpus=0, ...)": a trainer that uses a GPU if it may
// and there is one. prepare_batch moves each batch there, prepare_model the network. Beyond the book:
// the training stops, and another trainer, with other weights at first, loads its state and resumes it.
// Look at: where the weights live, and that the stop has changed no bit of them.

#include <torch/data/example.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <use_gpu/batch.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/training.hpp>

#include <filesystem>
#include <iostream>
#include <random>

using Batch = torch::data::Example<>;

struct Trainer {
  explicit Trainer(int num_gpus) : device(num_gpus > 0 ? use_gpu::try_gpu() : use_gpu::cpu()) {}
  Batch prepare_batch(const Batch& batch) const { return use_gpu::to_device(batch, device); }
  void prepare_model() {
    use_gpu::place(net, device);
    use_gpu::place(adam);  // its momenta follow
  }
  void fit(const std::vector<Batch>& data, int max_epochs) {
    prepare_model();
    for (; epoch < max_epochs; ++epoch) {
      for (const auto& on_host : data) {
        const auto batch = prepare_batch(on_host);
        adam.zero_grad();
        (net(batch.data) - batch.target).square().mean().backward();
        adam.step();
      }
    }
  }
  c10::Device device;
  torch::nn::Linear net{2, 1};
  torch::optim::Adam adam{net->parameters(), /*lr=*/0.1};
  std::int64_t epoch = 0;
};

int main() {
  torch::manual_seed(0);
  std::vector<Batch> data;  // y = 2 a - 3.4 b + 4.2, as in the book
  for (int i = 0; i < 32; ++i) {
    const auto x = torch::randn({32, 2});
    data.emplace_back(x, torch::matmul(x, torch::tensor({{2.0F}, {-3.4F}})) + 4.2);
  }
  torch::manual_seed(1);
  Trainer whole(/*num_gpus=*/1);
  whole.fit(data, 6);
  std::cout << "The weight after 6 epochs:\n" << use_gpu::show(whole.net->weight) << '\n';

  const auto file = std::filesystem::temp_directory_path() / std::to_string(std::random_device()());
  torch::manual_seed(1);
  Trainer stopped(1);
  stopped.fit(data, 3);
  use_gpu::save_training(stopped.net, stopped.adam, {.step = stopped.epoch}, file);
  Trainer resumed(1);
  resumed.prepare_model();
  resumed.epoch = use_gpu::load_training(resumed.net, resumed.adam, file).step;
  std::filesystem::remove(file);
  resumed.fit(data, 6);
  const bool is_same = whole.net->weight.equal(resumed.net->weight);
  std::cout << "Stopped and resumed: " << (is_same ? "the same bits\n" : "OTHER WEIGHTS\n");
  return is_same ? 0 : 1;
}
