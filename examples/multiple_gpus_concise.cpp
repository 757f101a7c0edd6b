// Chapter "Concise Implementation for Multiple GPUs": ResNet-18, a replica of it on each device.
//   multiple_gpus_concise [FOLDER]    with Fashion-MNIST's files, unpacked; else with a few images made on the
//                                     spot, which show the steps, but are too few to learn from
// Look at: each device takes its part of each batch, and the replicas stay equal.

#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <use_gpu/batch.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/parallel.hpp>
#include <use_gpu/parameters.hpp>
#include <use_gpu/replicas.hpp>

#include <algorithm>
#include <iostream>
#include <numeric>

#include "earlier_chapters.hpp"

using Batch = torch::data::Example<>;

void init_weights(torch::nn::Module& m) {
  if (auto* linear = m.as<torch::nn::Linear>()) torch::nn::init::normal_(linear->weight, 0, 0.01);
  if (auto* conv = m.as<torch::nn::Conv2d>()) torch::nn::init::normal_(conv->weight, 0, 0.01);
}

// Whether all replicas are equal afterwards.
bool train(const std::vector<Batch>& batches, const Batch& test,
           const std::vector<c10::Device>& devices, double lr) {
  torch::manual_seed(0);
  auto nets = use_gpu::mirror(devices, [] {
    auto net = resnet18(10);
    net->apply(init_weights);
    return net;
  });
  std::vector<torch::optim::SGD> optimizers;
  for (const auto& net : nets) optimizers.emplace_back(net->parameters(), lr);
  std::vector<std::int64_t> rows(devices.size()), right(devices.size());
  std::vector<torch::Tensor> ls;
  for (const auto& batch : batches) {
    const auto parts = use_gpu::split_batch(batch, devices);
    ls.assign(devices.size(), torch::zeros({}));
    use_gpu::parallel_on(devices, [&](c10::Device, int entry) {
      const auto i = static_cast<std::size_t>(entry);
      rows[i] = parts[i].data.size(0);
      optimizers[i].zero_grad();
      if (rows[i] == 0) return;
      ls[i] = torch::cross_entropy_loss(nets[i]->forward(parts[i].data), parts[i].target);
      ls[i].backward();
    });
    use_gpu::average_gradients(nets, rows);
    for (auto& sgd : optimizers) sgd.step();
  }
  use_gpu::copy_buffers(nets);

  const auto parts = use_gpu::split_batch(test, devices);
  use_gpu::parallel_on(devices, [&](c10::Device, int entry) {
    const auto i = static_cast<std::size_t>(entry);
    nets[i]->eval();
    right[i] = count_right([&](const torch::Tensor& X) { return nets[i]->forward(X); }, parts[i]);
  });
  double loss = 0;
  for (std::size_t i = 0; i < ls.size(); ++i)
    loss += ls[i].item<double>() * static_cast<double>(rows[i]);
  loss /= static_cast<double>(batches.back().data.size(0));
  std::cout << "Loss of the last batch " << loss << ", " << std::reduce(right.begin(), right.end())
            << " of " << test.data.size(0) << " test images right, on " << c10::Join(", ", devices)
            << '\n';
  const auto first = use_gpu::read_parameters(nets.front());
  return std::ranges::all_of(nets, [&](const auto& net) {
    return std::ranges::equal(
        use_gpu::read_parameters(net), first,
        [](const auto& x, const auto& y) { return x.second.equal(y.second); });
  });
}

int main(int argc, char** argv) try {
  const char* folder = argc > 1 ? argv[1] : nullptr;
  const auto batches =
      batches_of(load_images(folder, /*for_training=*/true, 37), folder != nullptr ? 256 : 32);
  const auto test = load_images(folder, false, 17);
  auto devices = use_gpu::try_all_gpus();
  bool are_equal = train(batches, test, std::vector{devices.front()}, /*lr=*/0.01);
  if (devices.size() < 2) devices.resize(2, devices.front());
  are_equal = train(batches, test, devices, 0.01) && are_equal;
  std::cout << "The replicas are " << (are_equal ? "equal\n" : "DIFFERENT\n");
  return are_equal ? 0 : 1;
} catch (const std::runtime_error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
