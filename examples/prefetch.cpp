// After the chapter: a training loop whose batches travel while the GPU computes. In the plain loop
// the host copies each batch and waits until it has arrived. prefetch() copies the next batches through
// pinned memory in a stream of its own. Only the stream that uses a batch waits for its copy.
// Look at: the losses are the same; on a GPU the time. Count the waits, "stream synchronizations", or
// see by --trace what waits for what:
//   build/release/simulate_gpus/bin/simulate_gpus --summary 1 build/release/examples/prefetch

#include <torch/data/example.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <use_gpu/device.hpp>
#include <use_gpu/metric_log.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/prefetch.hpp>

#include <chrono>
#include <cstdlib>
#include <iostream>

using Losses = std::vector<double>;

template <class Batches>
Losses train(Batches&& batches, c10::Device device) {
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(1024, 64), torch::nn::Linear(64, 1));
  use_gpu::place(net, device);
  torch::optim::SGD sgd(net->parameters(), /*lr=*/0.01);
  use_gpu::MetricLog log(device);
  for (auto& host_batch : batches) {
    const auto batch = use_gpu::to_device(host_batch, device);  // the same if it is there already
    sgd.zero_grad();
    const torch::Tensor loss = (net->forward(batch.data) - batch.target).square().mean();
    loss.backward();
    sgd.step();
    log.push(loss);
  }
  return log.values();  // waits for all steps
}

int main() {
  const c10::Device device = use_gpu::try_gpu();
  std::vector<torch::data::Example<>> loader;  // stands for a data loader
  for (int i = 0; i < 50; ++i) loader.emplace_back(torch::rand({256, 1024}), torch::rand({256, 1}));

  (void)train(loader, device);  // the first time loads what it needs
  (void)train(use_gpu::prefetch(loader, device), device);
  const auto start = std::chrono::steady_clock::now();
  const Losses losses = train(loader, device);
  const auto middle = std::chrono::steady_clock::now();
  const Losses others = train(use_gpu::prefetch(loader, device), device);
  const auto end = std::chrono::steady_clock::now();

  std::cout << "50 batches of 256 x 1024 on " << device << ": the losses are ";
  const bool are_same = torch::tensor(losses).allclose(torch::tensor(others), /*rtol=*/1e-5);
  std::cout << (are_same ? "the same\n" : "DIFFERENT\n");
  if (device.is_cpu()) {
    std::cout << "Here no batch travels: prefetch passes them on.\n";
  } else if (std::getenv("SIMULATE_GPUS") == nullptr && are_same) {  // a simulated GPU is the CPU
    using Milliseconds = std::chrono::duration<double, std::milli>;
    std::cout << "One batch after the other: " << Milliseconds(middle - start).count()
              << " ms, prefetch: " << Milliseconds(end - middle).count() << " ms\n";
  }
  return are_same ? 0 : 1;
}
