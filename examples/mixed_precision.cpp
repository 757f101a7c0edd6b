// After the chapter: mixed precision. Matrix products in float16 or bfloat16 take half the memory and, on
// tensor cores (float16 from V100 on, bfloat16 from A100 on), a fraction of the time; parameters and losses
// stay float32. In float16 small gradients would vanish, so a GradScaler multiplies the loss, and leaves
// out the steps that overflow.
// Look at: the losses, where float16 is behind by the steps left out; the memory; on a real GPU the times.

#include <ATen/DeviceAccelerator.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <use_gpu/device.hpp>
#include <use_gpu/memory.hpp>
#include <use_gpu/mixed_precision.hpp>
#include <use_gpu/network.hpp>

#include <cstdio>
#include <map>

#include "timing/timing.hpp"

int main() {
  const c10::Device device = use_gpu::try_gpu();
  torch::manual_seed(0);
  const auto x = torch::rand({1024, 64}, device), y = 10 * x.sin().mean(1, /*keepdim=*/true);
  std::map<std::string, std::string> told;

  const auto train = [&](at::ScalarType dtype) {
    if (!device.is_cpu()) at::accelerator::resetPeakStats(device.index());
    torch::manual_seed(1);
    const torch::nn::Linear output(512, 1), hidden(64, 512);
    torch::nn::Sequential net(hidden, torch::nn::ReLU(), output);
    use_gpu::place(net, device);
    torch::optim::SGD sgd(net->parameters(), /*lr=*/0.1);
    use_gpu::GradScaler scaler({.enabled = dtype == torch::kHalf});
    const auto forward = [&]() -> torch::Tensor {
      if (dtype == torch::kFloat) return net->forward(x);
      const use_gpu::AutocastGuard scope(device, dtype);
      return net->forward(x);
    };
    std::vector<torch::Tensor> losses;
    int left_out = 0;
    for (int step = 0; step < 20; ++step) {
      sgd.zero_grad();
      losses.push_back((forward().to(torch::kFloat) - y).square().mean());
      scaler.scale(losses.back()).backward();
      left_out += scaler.step(sgd) ? 0 : 1;
      scaler.update();
    }
    auto& text = told[c10::toString(dtype)];
    text = c10::str("loss ", losses.back().item<float>(), ", ", left_out, " steps left out");
    if (!device.is_cpu())
      text += c10::str(", ", use_gpu::memory_report(device).peak_allocated_bytes >> 10, " KiB");
    return std::vector{torch::stack(losses).detach()};
  };
  const auto learns = [](const std::vector<at::Tensor>& losses) {
    return (losses[0][-1] < losses[0][0] / 10).item<bool>();
  };
  std::vector<Contender> ways;
  for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf})
    ways.push_back({c10::toString(dtype), {device}, [&, dtype] { return train(dtype); }, learns});
  const auto figures = measure(ways, 1.0);
  std::printf("20 steps of 1024 rows on %s. %s.\n\n", label(device).c_str(), machine().c_str());
  for (std::size_t i = 0; i < ways.size(); ++i) {
    std::printf("%-8s  %-25s  %s\n", ways[i].name.c_str(), text_of(figures[i]).c_str(),
                told[ways[i].name].c_str());
  }
  return std::ranges::all_of(figures, &Figure::is_right) ? 0 : 1;
}
