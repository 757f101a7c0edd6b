// SPDX-License-Identifier: MIT
//
// Two products on two devices at the same time: through parallel_on, and in two bare std::threads
// on the same tensors; against one after the other on one device. Large ones, and a thousand tiny
// ones. On two GPUs, or one that stands for both; and with the CPU standing for both.
//
//   two_gpus_benchmark --benchmark_repetitions=9 --benchmark_enable_random_interleaving=true
#include <use_gpu/device.hpp>
#include <use_gpu/parallel.hpp>

#include <thread>

#include "contender_benchmark.hpp"
#include "measuring/matmul.hpp"

namespace {

using Products = std::vector<at::Tensor>;
using Matmuls = std::vector<Matmul>;  // two, each to be computed so many times

Products in_sequence(const Matmuls& matmuls, int times) {
  return {matmuls[0].product(times), matmuls[1].product(times)};
}

Products in_bare_threads(const Matmuls& matmuls, int times) {
  Products products(2);
  std::thread first([&] { products[0] = matmuls[0].product(times); });
  std::thread second([&] { products[1] = matmuls[1].product(times); });
  first.join();
  second.join();
  return products;
}

Products in_parallel(const Matmuls& matmuls, int times) {
  Products products(2);
  use_gpu::parallel_on({matmuls[0].device(), matmuls[1].device()}, [&](c10::Device, int entry) {
    const auto i = static_cast<std::size_t>(entry);
    products[i] = matmuls[i].product(times);
  });
  return products;
}

void add_ways(int n, int times, c10::Device first, c10::Device second) {
  const auto where = (first == second ? "" : first.str() + " and ") + label(second);
  const auto add = [=](const std::string& name, c10::Device other, auto work) {
    const auto make = [=]() -> Contender {
      const Matmuls matmuls = {{n, first, k_float32}, {n, other, k_float32}};
      return {name,
              {first, other},
              [=] { return work(matmuls, times); },
              check_of(matmuls),
              times * matmuls.front().least_seconds()};
    };
    add_benchmark("two_gpus/" + where + "/" + std::to_string(n) + "/" + name, make,
                  {.operations = 2.0 * times * 2 * n * n * n});
  };
  add("in sequence", first, in_sequence);
  add("bare threads", second, in_bare_threads);
  add("parallel_on", second, in_parallel);
}

}  // namespace

int main(int argc, char** argv) {
  const auto cpu = use_gpu::cpu();
  add_ways(1024, 1, cpu, cpu);
  add_ways(16, 1000, cpu, cpu);
  if (use_gpu::num_gpus() > 0) {
    const auto first = use_gpu::gpu(0), second = use_gpu::gpu(use_gpu::num_gpus() > 1 ? 1 : 0);
    add_ways(is_simulated(first) ? 1024 : 8192, 1, first, second);
    add_ways(16, 1000, first, second);
  }
  return run_benchmarks(argc, argv);
}
