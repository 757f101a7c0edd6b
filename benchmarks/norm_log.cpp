// SPDX-License-Identifier: MIT
//
// The ways of exercise 3, 1000 products of 100 x 100 and the norm of each, on the CPU and on the
// first GPU.
//
//   norm_log_benchmark --benchmark_repetitions=9 --benchmark_enable_random_interleaving=true
#include "norm_log.hpp"

#include <use_gpu/device.hpp>

#include "contender_benchmark.hpp"

int main(int argc, char** argv) {
  std::vector<c10::Device> devices = {use_gpu::cpu()};
  if (use_gpu::num_gpus() > 0) devices.push_back(use_gpu::gpu());
  for (const auto device : devices) {
    for (const auto& contender : norm_log_contenders(device)) {
      if (contender.devices.empty() && !device.is_cpu()) continue;  // the same as on the CPU
      add_benchmark("norm_log/" + label(device) + "/" + contender.name, [=] { return contender; });
    }
  }
  return run_benchmarks(argc, argv);
}
