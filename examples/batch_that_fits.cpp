// After the chapter: "we need to make sure that we do not create data that exceeds the GPU memory
// limit". How large that is depends on the machine, so this program tries: a step of training with
// the batch that it wants and, as long as GPU memory runs out, with half of it.
// Look at: the batch that fits, and what the wanted one would have needed. A GPU of 1 GiB:
//   build/release/simulate_gpus/bin/simulate_gpus --memory 1GiB 1 build/release/examples/batch_that_fits

#include <ATen/DeviceAccelerator.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <use_gpu/memory.hpp>
#include <use_gpu/network.hpp>

#include <iostream>

int main() {
  const c10::Device device = use_gpu::try_emptiest_gpu();
  torch::nn::Sequential net(torch::nn::Linear(8, 2048), torch::nn::ReLU(),
                            torch::nn::Linear(2048, 1));
  use_gpu::place(net, device);
  const auto step = [&](std::int64_t size) {
    if (!device.is_cpu()) at::accelerator::resetPeakStats(device.index());
    net->zero_grad();
    const torch::Tensor x = torch::rand({size, 8}, device);
    (net->forward(x) - x.sum(1, true)).square().mean().backward();
  };

  const std::int64_t wanted = 65536;
  const std::int64_t size = use_gpu::fit_batch_size(wanted, step);
  std::cout << "A batch of " << size << " fits on " << device << '\n';
  if (device.is_cpu()) return 0;  // LibTorch does not count host memory
  const auto report = use_gpu::memory_report(device);
  std::cout << report;
  if (size < wanted) {
    std::cout << "A batch of " << wanted << " needs about "
              << (report.peak_allocated_bytes >> 20) * static_cast<std::uint64_t>(wanted / size)
              << " MiB, the GPU has " << (*report.total_bytes >> 20) << " MiB.\n";
  }
}
