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

int main() {
  std::vector<c10::Device> devices = {use_gpu::cpu()};
  if (use_gpu::num_gpus() > 0) devices.push_back(use_gpu::gpu());
  std::printf(
      "Products of two n x n matrices, float32, least of ten. %d CPU threads, LibTorch %s.\n",
      at::get_num_threads(), TORCH_VERSION);
  double longest = 0;
  for (int n = 1; longest < 0.04; n *= 2) {
    std::printf("%5d", n);
    for (const c10::Device device : devices) {
      const auto a = torch::rand({n, n}, device), x = a.mean(1);
      torch::Tensor product = a.mm(a);  // the first one warms up
      double seconds = 1e9;
      for (int run = 0; run < 10; ++run) {
        use_gpu::synchronize(device);  // what was queued before is done
        const auto start = std::chrono::steady_clock::now();
        product = a.mm(a);
        use_gpu::synchronize(device);  // else the clock is read when the product is only queued
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
        seconds = std::min(seconds, time.count());
      }
      TORCH_CHECK(product.mv(x).allclose(a.mv(a.mv(x)), 1e-3), "a wrong product on ", device);
      longest = std::max(longest, seconds);
      if (device.is_cpu() || std::getenv("SIMULATE_GPUS") == nullptr)
        std::printf("  %s: %9.1f us, %8.3g GFLOP/s", device.str().c_str(), seconds * 1e6,
                    2e-9 * n * n * n / seconds);
      else
        std::printf("  %s: right (simulated)", device.str().c_str());
    }
    std::puts("");
  }
}
