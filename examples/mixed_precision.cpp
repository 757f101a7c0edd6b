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

#include <chrono>
#include <cstdlib>
#include <iostream>

// The loss after 20 steps, and how many steps were left out.
std::pair<float, int> train(c10::Device device, at::ScalarType dtype) {
  torch::manual_seed(2);
  const auto x = torch::rand({1024, 64}, device), y = 10 * x.sin().mean(1, /*keepdim=*/true);
  // In braces: in parentheses each compiler draws the weights in an order of its own.
  torch::nn::Sequential net{torch::nn::Linear(64, 512), torch::nn::ReLU(),
                            torch::nn::Linear(512, 1)};
  use_gpu::place(net, device);
  torch::optim::SGD sgd(net->parameters(), /*lr=*/0.1);
  use_gpu::GradScaler scaler({.enabled = dtype == torch::kHalf});
  const bool is_mixed = dtype != torch::kFloat;
  torch::Tensor loss;
  int left_out = 0;
  for (int step = 0; step < 20; ++step) {
    sgd.zero_grad();
    {
      const use_gpu::AutocastGuard scope(device, is_mixed ? dtype : torch::kHalf, is_mixed);
      loss = (net->forward(x).to(torch::kFloat) - y).square().mean();
    }
    scaler.scale(loss).backward();
    left_out += scaler.step(sgd) ? 0 : 1;
    scaler.update();
  }
  return {loss.item<float>(), left_out};
}

int main() {
  const c10::Device device = use_gpu::try_gpu();
  std::cout << "20 steps of 1024 rows on " << device << '\n';
  for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf}) {
    (void)train(device, dtype);  // the first time loads what it needs
    if (!device.is_cpu()) at::accelerator::resetPeakStats(device.index());
    const auto start = std::chrono::steady_clock::now();
    const auto [loss, left_out] = train(device, dtype);  // item() has waited for the device
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    TORCH_CHECK(loss < 1, dtype, ": nothing was learned, the loss is ", loss);
    std::cout << dtype << ": loss " << loss << ", " << left_out << " steps left out";
    if (!device.is_cpu())
      std::cout << ", " << (use_gpu::memory_report(device).peak_allocated_bytes >> 10) << " KiB";
    if (device.is_cpu() || std::getenv("SIMULATE_GPUS") == nullptr)
      std::cout << ", " << time.count() << " ms";
    std::cout << '\n';
  }
}
