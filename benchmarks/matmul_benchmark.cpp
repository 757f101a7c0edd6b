// SPDX-License-Identifier: MIT
//
// Products of two square matrices on the CPU and on the first GPU, in each precision that exercise
// 1 knows; on a CUDA GPU also the largest in bf16 by a bare loop over cuBLASLt, which is as fast as
// it can get.
//
//   matmul_benchmark --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true
#include "timing/products.hpp"

#include <use_gpu/device.hpp>

#include <cmath>

#include "contender_benchmark.hpp"
#include "matmul_cublaslt_cuda.hpp"

namespace {

Contender product(std::int64_t n, c10::Device device, const Precision& precision) {
  const auto x = random_factors(n, device, precision);
  const auto work = [x] {
    const Tf32Guard tf32(x.precision.is_tf32);
    return std::vector{x.a.mm(x.b)};
  };
  return {name_of(device, precision), {device}, work, check_of({x}), least_seconds(x)};
}

Amount amount_of(std::int64_t n) { return {.operations = 2 * std::pow(n, 3)}; }

void add_products(c10::Device device, std::int64_t largest) {
  for (const auto& precision : precisions(device)) {
    for (std::int64_t n = 1; n <= largest; n *= 2) {
      add_benchmark(
          "matmul/" + name_of(device, precision) + "/" + std::to_string(n),
          [=] { return product(n, device, precision); }, amount_of(n));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto gpu = use_gpu::try_gpu();
  add_products(use_gpu::cpu(), 2048);
  if (!gpu.is_cpu()) add_products(gpu, is_simulated(gpu) ? 2048 : 8192);
  if (const auto bare = cublaslt_contender(8192, gpu)) {
    add_benchmark("matmul/" + label(gpu) + " bf16 cublasLt/8192", bare, amount_of(8192));
  }
  return run_benchmarks(argc, argv);
}
