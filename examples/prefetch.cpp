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

#include <cstdio>

#include "timing/timing.hpp"

int main() {
  const c10::Device device = use_gpu::try_gpu();
  std::vector<torch::data::Example<>> loader;  // stands for a data loader
  for (int i = 0; i < 50; ++i) loader.emplace_back(torch::rand({256, 1024}), torch::rand({256, 1}));

  const auto train = [&](auto&& batches) {
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
    return std::vector{torch::tensor(log.values())};
  };

  const auto one_by_one = [&] { return train(loader); };
  const auto prefetched = [&] { return train(use_gpu::prefetch(loader, device)); };

  const auto expected = one_by_one().front();
  const auto is_right = [&](const std::vector<at::Tensor>& losses) {
    return losses.front().allclose(expected, /*rtol=*/1e-5);
  };
  const std::vector<Contender> contenders = {
      {"one batch after the other", {device}, one_by_one, is_right},
      {"prefetch", {device}, prefetched, is_right}};
  const auto figures = measure(contenders, 1.0);
  std::printf("50 batches of 256 x 1024 on %s. %s.\n\n", label(device).c_str(), machine().c_str());
  for (std::size_t i = 0; i < figures.size(); ++i) {
    std::printf("%-25s  %6s  %s\n", contenders[i].name.c_str(),
                speed_up(figures[0], figures[i]).c_str(), text_of(figures[i]).c_str());
  }
  std::puts(
      "\nThe losses are the same. On the CPU no batch travels: there prefetch passes them on.");
  return figures[0].is_right && figures[1].is_right ? 0 : 1;
}
