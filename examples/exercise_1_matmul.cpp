// Exercise 1: a task with much to compute, the product of large matrices, on the CPU and on the
// GPU, and one with little, the product of small ones.
// Look at: below some size the time on the GPU is constant, because the launch takes longer than
// the product. Where "CPU/GPU" is above 1, the GPU is worth using.

#include <use_gpu/device.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "timing/products.hpp"
#include "timing/timing.hpp"

namespace {

// What is measured: the product of two random n x n matrices.
Contender product(int n, c10::Device device, const Precision& precision) {
  const auto x = random_factors(n, device, precision);
  const auto work = [x] {
    const Tf32Guard tf32(x.precision.is_tf32);
    return std::vector{x.a.mm(x.b)};
  };
  const auto name = name_of(device, precision) + " " + std::to_string(n);
  return {name, {device}, work, check_of({x}), least_seconds(x)};
}

}  // namespace

int main() {
  const auto gpu = use_gpu::try_gpu();
  std::vector<std::pair<c10::Device, Precision>> columns = {{use_gpu::cpu(), k_float32}};
  const bool is_timed = !gpu.is_cpu() && !is_simulated(gpu);
  for (const auto& precision : precisions(gpu)) columns.emplace_back(gpu, precision);
  if (gpu.is_cpu()) columns.pop_back();  // once is enough
  std::printf("Products of two n x n matrices. %s.\n\n%7s", machine().c_str(), "n");
  for (const auto& [where, precision] : columns)
    std::printf("%28s", name_of(where, precision).c_str());
  std::puts(is_timed ? "  CPU/GPU, float32" : "");
  std::vector<Figure> figures;  // of the last row
  double longest = 0;           // of all, in seconds
  int n = 0, crossing = 0;      // the least n from which the GPU was faster
  // Twice the size takes eight times as long, and the program is to end after a few seconds.
  while (longest < 0.04) {
    n = std::max(1, 2 * n);
    std::vector<Contender> contenders;
    for (const auto& [where, precision] : columns)
      contenders.push_back(product(n, where, precision));
    figures = measure(contenders, 0.1);
    std::printf("%7d", n);
    for (const auto& figure : figures) {
      std::printf("%28s", text_of(figure).c_str());
      if (!figure.is_right) return std::puts(""), 1;
      if (figure.time) longest = std::max(longest, figure.time->median);
    }
    if (is_timed) std::printf("%18s", speed_up(figures[0], figures[1]).c_str());
    std::puts("");
    const bool is_faster = is_timed && figures[0].time->median > figures[1].time->median;
    crossing = !is_faster ? 0 : crossing == 0 ? n : crossing;
  }
  std::printf("GFLOP/s");
  for (const auto& figure : figures) {
    if (figure.time) std::printf("%28.0f", 2e-9 * std::pow(n, 3) / figure.time->median);
  }
  std::puts("\n");
  if (!is_timed) {
    std::puts("There is no real GPU to compare the CPU with.");
  } else if (crossing == 0) {
    std::puts("At the largest size the GPU was still the slower one.");
  } else {
    std::printf("From n = %d on the GPU was the faster one.\n", crossing);
  }
}
