// Exercise 1: a task with much to compute, the product of large matrices, on the CPU and on the
// GPU, and one with little, the product of small ones.
// Look at: below some size the GPU takes the same time however small the matrices are, as starting
// it takes longer than multiplying. Where "CPU/GPU" passes 1, sending the work there begins to pay.

#include <use_gpu/device.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "contender.hpp"
#include "matmul.hpp"

int main() {
  const auto gpu = use_gpu::try_gpu();
  std::vector<std::pair<c10::Device, Precision>> columns = {{use_gpu::cpu(), k_float32}};
  if (!gpu.is_cpu()) {
    for (const auto& precision : precisions(gpu)) columns.emplace_back(gpu, precision);
  }
  std::printf("Products of two n x n matrices. %s.\n\n%7s", machine().c_str(), "n");
  for (const auto& [device, precision] : columns) {
    std::printf("%28s", name_of(device, precision).c_str());
  }
  std::puts(gpu.is_cpu() ? "" : "  CPU/GPU, float32");

  std::vector<double> seconds(columns.size());  // of the last row
  int n = 0, crossing = 0;                      // the least n from which on the GPU was faster
  // Twice the size takes eight times as long, and the program shall end after a few seconds.
  while (std::ranges::max(seconds) < 0.04) {
    n = std::max(1, 2 * n);
    std::vector<Contender> contenders;
    for (const auto& [device, precision] : columns) {
      contenders.push_back(Matmul(n, device, precision).contender());
    }
    const auto figures = measure(contenders, 0.1);
    std::printf("%7d", n);
    for (std::size_t i = 0; i < columns.size(); ++i) {
      std::printf("%28s", text_of(figures[i]).c_str());
      if (!figures[i]) return std::puts(""), 1;
      seconds[i] = figures[i]->median;
    }
    const double ratio = seconds.front() / seconds.at(gpu.is_cpu() ? 0 : 1);
    if (!gpu.is_cpu()) std::printf("%18.2f", ratio);
    std::puts("");
    crossing = ratio <= 1 ? 0 : crossing == 0 ? n : crossing;
  }
  std::printf("GFLOP/s");
  for (const double time : seconds) std::printf("%28.0f", 2e-9 * std::pow(n, 3) / time);
  std::puts("\n");

  if (gpu.is_cpu()) {
    std::puts("There is no GPU: the CPU against itself would be no comparison.");
  } else if (gpu.is_privateuseone()) {
    std::puts("The GPU is simulated by the CPU: the ratio says nothing about GPUs.");
  } else if (crossing == 0) {
    std::puts("At the largest size the GPU was still the slower one.");
  } else {
    std::printf("From n = %d on the GPU was the faster one.\n", crossing);
  }
}
