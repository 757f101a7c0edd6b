// Exercise 4: two products of matrices at the same time on two GPUs, against one after the other on one.
// Look at: one thread keeps two GPUs busy with large products, as it only starts them. With tiny ones the
// GPUs wait for the thread, unless each GPU has its own.

#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/parallel.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

torch::Tensor multiply(const torch::Tensor& a, int times) {
  for (int i = 1; i < times; ++i) (void)a.mm(a);
  return a.mm(a);
}

// The time of a simulated GPU says nothing of a GPU's.
bool is_timed(c10::Device device) {
  return device.is_cpu() || std::getenv("SIMULATE_GPUS") == nullptr;
}

void compare(int n, int times, c10::Device first, c10::Device second) {
  const auto x = torch::rand({n, n}, first), y = torch::rand({n, n}, first), z = y.to(second);
  std::vector<torch::Tensor> products(2);
  const auto in_turn = [&] { products = {multiply(x, times), multiply(y, times)}; };
  const auto by_one_thread = [&] { products = {multiply(x, times), multiply(z, times)}; };
  const auto by_two_threads = [&] {
    use_gpu::parallel_on({first, second}, [&](c10::Device, std::size_t i) {
      products[i] = multiply(i == 0 ? x : z, times);
    });
  };
  std::printf("\n2 x %d products of %d x %d:\n", times, n, n);
  for (const auto& [name, work] :
       {std::pair<const char*, std::function<void()>>{"one after the other, on one", in_turn},
        {"on two, by one thread", by_one_thread},
        {"on two, a thread for each", by_two_threads}}) {
    double least = 1e9;
    for (int run = 0; run < (is_timed(first) ? 6 : 1); ++run) {
      const auto start = std::chrono::steady_clock::now();
      work();
      for (const c10::Device device : {first, second}) use_gpu::synchronize(device);
      const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
      if (run > 0) least = std::min(least, ms.count());  // the first one warms up
    }
    TORCH_CHECK(products[0].allclose(x.mm(x), 1e-3), "a wrong product: ", name);
    TORCH_CHECK(products[1].to(first).allclose(y.mm(y), 1e-3), "a wrong product: ", name);
    std::printf("  %-27s  %s\n", name,
                is_timed(first) ? c10::str(least, " ms").c_str() : "right (simulated)");
  }
}

int main() {
  const auto first = use_gpu::try_gpu(), second = use_gpu::num_gpus() > 1 ? use_gpu::gpu(1) : first;
  std::printf("Products of matrices, float32, on %s and %s.%s\n", first.str().c_str(),
              second.str().c_str(), is_timed(first) ? " Least of five runs." : "");
  if (first == second)
    std::printf("Fewer than two GPUs: what runs at once shares %s.\n", first.str().c_str());
  compare(2048, 1, first, second);
  compare(16, 5000, first, second);
}
