// Chapter "Concise Implementation for Multiple GPUs": ResNet-18, a replica of it on each device.
//   multiple_gpus_concise [FOLDER]    with Fashion-MNIST's files, unpacked; else with a few images made on the
//                                     spot, which show the steps, but are too few to learn from
// Look at: each device takes its part of each batch, and the replicas stay equal.

#include <torch/optim/sgd.h>
#include <use_gpu/batch.hpp>
#include <use_gpu/device.hpp>
#include <use_gpu/parallel.hpp>
#include <use_gpu/parameters.hpp>
#include <use_gpu/replicas.hpp>

#include <algorithm>
#include <iostream>

#include "earlier_chapters.hpp"

using Batch = torch::data::Example<>;

// Whether all replicas are equal afterwards.
bool train(const std::vector<Batch>& batches, const Batch& test,
           const std::vector<c10::Device>& devices, double lr) {
  torch::manual_seed(0);
  auto nets = use_gpu::mirror(devices, [] { return resnet18(10); });
  std::vector<torch::optim::SGD> optimizers;
  for (const auto& net : nets) optimizers.emplace_back(net->parameters(), lr);
  std::vector<torch::Tensor> ls(devices.size());
  for (const auto& batch : batches) {
    const auto parts = use_gpu::split_batch(batch, devices);
    use_gpu::parallel_on(devices, [&](c10::Device, int entry) {
      const auto i = static_cast<std::size_t>(entry);
      optimizers[i].zero_grad();
      ls[i] = torch::cross_entropy_loss(nets[i]->forward(parts[i].data), parts[i].target);
      ls[i].backward();
    });
    std::vector<std::int64_t> rows;
    for (const auto& part : parts) rows.push_back(part.data.size(0));
    use_gpu::average_gradients(nets, rows);
    for (auto& sgd : optimizers) sgd.step();
  }
  use_gpu::copy_buffers(nets);

  const auto parts = use_gpu::split_batch(test, devices);
  std::vector<std::int64_t> right(devices.size());
  use_gpu::parallel_on(devices, [&](c10::Device, int entry) {
    const auto i = static_cast<std::size_t>(entry);
    const torch::NoGradGuard no_grad;
    nets[i]->eval();
    for (const auto& part : batches_of(parts[i], 256)) {
      const auto y_hat = nets[i]->forward(part.data);
      right[i] += y_hat.argmax(1).eq(part.target).sum().item<std::int64_t>();
    }
  });
  for (std::size_t i = 0; i < devices.size(); ++i) {
    std::cout << devices[i] << ": loss " << ls[i].item<float>() << ", " << right[i] << " of "
              << parts[i].data.size(0) << " test images right\n";
  }
  const auto first = use_gpu::read_parameters(nets.front());
  return std::ranges::all_of(use_gpu::read_parameters(nets.back()),
                             [&](const auto& x) { return x.second.equal(first.at(x.first)); });
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
