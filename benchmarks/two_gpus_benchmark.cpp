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
#include "timing/products.hpp"

namespace {

using Products = std::vector<at::Tensor>;
using AllFactors = std::vector<Factors>;  // of two products, each to be computed so many times

at::Tensor multiply(const Factors& factors, int times) {
  at::Tensor product;
  for (int i = 0; i < times; ++i) product = factors.a.mm(factors.b);
  return product;
}

Products in_sequence(const AllFactors& factors, int times) {
  return {multiply(factors[0], times), multiply(factors[1], times)};
}

Products in_bare_threads(const AllFactors& factors, int times) {
  Products products(2);
  std::thread first([&] { products[0] = multiply(factors[0], times); });
  std::thread second([&] { products[1] = multiply(factors[1], times); });
  first.join();
  second.join();
  return products;
}

Products in_parallel(const AllFactors& factors, int times) {
  Products products(2);
  use_gpu::parallel_on({factors[0].a.device(), factors[1].a.device()}, [&](c10::Device, int entry) {
    const auto i = static_cast<std::size_t>(entry);
    products[i] = multiply(factors[i], times);
  });
  return products;
}

void add_ways(int n, int times, c10::Device first, c10::Device second) {
  const auto where = (first == second ? "" : first.str() + " and ") + label(second);
  const auto add = [=](const std::string& name, c10::Device other, auto work) {
    const auto make = [=]() -> Contender {
      const AllFactors factors = {random_factors(n, first, k_float32),
                                  random_factors(n, other, k_float32)};
      return {name,
              {first, other},
              [=] { return work(factors, times); },
              check_of(factors),
              times * least_seconds(factors.front())};
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
