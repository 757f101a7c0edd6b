// Chapter "Asynchronous Computation": on a GPU the host only queues work, and goes on before it is done.
// What needs a value waits for all that was queued before it.
// Look at: what waits and what does not; on a real GPU how far the host runs ahead. A simulated one computes what
// is queued at once; there count the waits, "synchronizations", or see them by --trace:
//   build/release/simulate_gpus/bin/simulate_gpus --summary 1 build/release/examples/async_computation

#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>
#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/tensor.hpp>
#include <use_gpu/transfers.hpp>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <functional>
#include <iostream>
#include <sstream>

#include "timing/products.hpp"
#include "timing/timing.hpp"

using Tensors = std::vector<torch::Tensor>;

void multiply(const torch::Tensor& a, int times) {
  for (int i = 0; i < times; ++i) (void)torch::mm(a, a);
}

// What an action reads from the GPU; and whether the host waits in it for products queued before.
void tell(const char* name, const torch::Tensor& a, const std::function<void()>& action) {
  const auto stream = at::accelerator::getCurrentStream(a.device().index());
  action();  // the first time loads what it needs
  multiply(a, 10);
  const use_gpu::TransferLedger ledger;
  action();
  const bool waited = stream.query();
  const auto copies = ledger.count(use_gpu::TransferDirection::device_to_host).copies;
  std::printf("  %-15s  %10d  %10d%s\n", name, static_cast<int>(copies),
              static_cast<int>(ledger.item_reads()),
              is_simulated(a.device()) ? ""
              : waited                 ? "  waits"
                                       : "  goes on");
}

// How many of 100 products are queued at most, if the host waits for the oldest of `limit`.
std::size_t most_queued(const torch::Tensor& a, std::size_t limit) {
  std::deque<c10::Event> steps;
  std::size_t most = 0;
  for (int i = 0; i < 100; ++i) {
    multiply(a, 1);
    steps.emplace_back(a.device().type());
    steps.back().record(at::accelerator::getCurrentStream(a.device().index()));
    while (!steps.empty() && steps.front().query()) steps.pop_front();
    most = std::max(most, steps.size());
    if (steps.size() >= limit) steps.front().synchronize();
  }
  return most;
}

int main() {
  const c10::Device device = use_gpu::try_gpu();
  const bool is_real = !device.is_cpu() && !is_simulated(device);
  const auto x = torch::ones({1, 2}, device), y = torch::ones({1, 2}, device);
  const torch::Tensor z = x * y + 2;
  std::cout << use_gpu::show(z) << "\n\n";  // printing needs the values: it waits

  const int n = is_real ? 1000 : 256;
  const auto products = [&](c10::Device on) {
    Tensors last;
    for (int i = 0; i < 10; ++i) {
      const auto factors = random_factors(n, on, k_float32);
      last = {factors.a, factors.b, torch::mm(factors.a, factors.b)};
    }
    return last;
  };
  const auto add = [&](bool waits) {
    Tensors sum(1);
    for (int i = 0; i < 1000; ++i) {
      sum[0] = x + 1;
      if (waits) use_gpu::synchronize(device);
    }
    return sum;
  };
  const auto multiplied = [](const Tensors& t) {
    return is_product({k_float32, t[0], t[1]}, t[2]);
  };
  const auto added = [](const Tensors& sum) { return sum[0].eq(2).all().item<bool>(); };
  std::vector<Contender> ways = {
      {"ten products", {device}, [&] { return products(device); }, multiplied},
      {"additions, a wait after each", {device}, [&] { return add(true); }, added},
      {"additions, one after all", {device}, [&] { return add(false); }, added}};
  if (!device.is_cpu())
    ways.push_back({"the products on the CPU", {}, [&] { return products(at::kCPU); }, multiplied});
  if (is_real)  // no device to wait for before the clock is read
    ways.push_back({"the products, only queued", {}, [&] { return products(device); }, multiplied});
  const auto figures = measure(ways, 0.5);
  std::printf("Ten products of random %d x %d matrices and 1000 additions on %s. %s.\n", n, n,
              label(device).c_str(), machine().c_str());
  for (std::size_t i = 0; i < ways.size(); ++i)
    std::printf("  %-28s  %s\n", ways[i].name.c_str(), text_of(figures[i]).c_str());

  if (device.is_cpu()) {
    std::puts("\nOn the CPU each call returns when its work is done: nothing is queued.");
  } else {
    const auto a = torch::rand({4 * n, 4 * n}, device);
    std::puts("\n  action           host reads  item reads");
    tell("z + 1", a, [&] { (void)(z + 1); });
    tell("z.sum().item()", a, [&] { (void)z.sum().item<float>(); });
    tell("z.cpu()", a, [&] { (void)z.cpu(); });
    tell("printing z", a, [&] { std::ostringstream() << use_gpu::show(z); });
    tell("synchronize", a, [&] { use_gpu::synchronize(device); });
    if (is_real)
      std::printf(
          "Of 100 products %zu were queued at once; %zu where the host waits for the last but "
          "one.\n",
          most_queued(a, 101), most_queued(a, 2));
  }
  return std::ranges::all_of(figures, &Figure::is_right) ? 0 : 1;
}
