// SPDX-License-Identifier: MIT
//
// The ways of exercise 3, 1000 products of 100 x 100 and the norm of each, on the CPU and on the
// first GPU; and the roofline under them.
//
//   norm_log_benchmark --benchmark_repetitions=9 --benchmark_enable_random_interleaving=true
#include "norm_log.hpp"

#include <ATen/Functions.h>
#include <use_gpu/device.hpp>

#include "contender_benchmark.hpp"

namespace {

// All that the products read and write, 80 and 40 MB, in one copy.
Contender roofline(c10::Device device) {
  const auto source = at::ones({15'000'000}, at::device(device));
  const auto target = at::zeros_like(source);
  return {"memory traffic alone",
          {device},
          [=] { return std::vector{at::Tensor(target).copy_(source)}; },
          [](const auto& results) { return results.front().eq(1).all().template item<bool>(); }};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<c10::Device> devices = {use_gpu::cpu()};
  if (use_gpu::num_gpus() > 0) devices.push_back(use_gpu::gpu());
  for (const auto device : devices) {
    auto contenders = norm_log_contenders(device);
    contenders.push_back(roofline(device));
    for (const auto& contender : contenders) {
      if (contender.devices.empty() && !device.is_cpu()) continue;  // the same as on the CPU
      add_benchmark("norm_log/" + label(device) + "/" + contender.name, [=] { return contender; });
    }
  }
  return run_benchmarks(argc, argv);
}
