// Exercise 1: much to compute, the product of large matrices, on the CPU and on the GPU; and little, the
// product of small ones.
// Look at: the time of small products hardly depends on their size, as a launch takes longer than the
// product; and from which row on the GPU is faster.

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <torch/version.h>
#include <use_gpu/device.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

// The seconds of eleven products, the least first.
std::vector<double> times_of_product(const torch::Tensor& a) {
  const torch::Tensor x = torch::ones(a.size(0), a.options()), expected = a.mv(a.mv(x));
  std::vector<double> times;
  for (int run = 0; run < 12; ++run) {
    use_gpu::synchronize(a.device());  // what was queued before is done
    const auto start = std::chrono::steady_clock::now();
    const torch::Tensor product = a.mm(a);
    use_gpu::synchronize(a.device());  // else the clock is read when the product is only queued
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    TORCH_CHECK(product.mv(x).allclose(expected, /*rtol=*/1e-3), "a wrong product on ", a.device());
    if (run > 0) times.push_back(time.count());  // the first one warms up
  }
  std::ranges::sort(times);
  return times;
}

int main() {
  std::vector<c10::Device> devices = {use_gpu::cpu()};
  if (use_gpu::num_gpus() > 0) devices.push_back(use_gpu::gpu());
  std::printf(
      "Products of two n x n matrices, float32, median of 11. %d CPU threads, LibTorch %s.\n",
      at::get_num_threads(), TORCH_VERSION);
  double longest = 0;  // by the least times, which a busy machine changes least
  for (int n = 1; longest < 0.04; n *= 2) {
    std::printf("%5d", n);
    for (const c10::Device device : devices) {
      const auto times = times_of_product(torch::rand({n, n}, device));
      longest = std::max(longest, times.front());
      const double median = times[times.size() / 2];
      if (!device.is_cpu() && std::getenv("SIMULATE_GPUS") != nullptr)
        std::printf("  %s: right (simulated)", device.str().c_str());
      else
        std::printf("  %s: %9.1f us, %8.3g GFLOP/s", device.str().c_str(), median * 1e6,
                    2e-9 * n * n * n / median);
    }
    std::puts("");
  }
}
