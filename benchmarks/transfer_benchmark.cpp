// SPDX-License-Identifier: MIT
//
// Copies from host memory to the first GPU and back, 4 bytes to 1 GB (less where memory is short),
// pageable and pinned, and many small ones against one large one. Without a GPU: in host memory.
//
//   transfer_benchmark --benchmark_repetitions=5 --benchmark_enable_random_interleaving=true
#include <ATen/Functions.h>
#include <unistd.h>
#include <use_gpu/device.hpp>
#include <use_gpu/memory.hpp>

#include <algorithm>
#include <cstdint>

#include "contender_benchmark.hpp"

namespace {

struct Copies {
  c10::Device device;
  bool to_device, is_pinned;
  std::int64_t count, bytes;  // `count` copies of `bytes` bytes each
};

// Copies 1, 2, 3 ... over zeros, so that a missing copy shows.
Contender contender_of(const Copies& copies, const std::string& name) {
  const auto host = at::dtype(at::kInt).pinned_memory(copies.is_pinned);
  const auto device = at::dtype(at::kInt).device(copies.device);
  const auto values = at::arange(1, copies.bytes / 4 + 1, at::kInt);
  std::vector<at::Tensor> sources, targets;
  for (std::int64_t i = 0; i < copies.count; ++i) {
    sources.push_back(at::empty_like(values, copies.to_device ? host : device).copy_(values));
    targets.push_back(at::zeros_like(values, copies.to_device ? device : host));
  }
  return {name,
          {copies.device},
          [=] {
            for (std::size_t i = 0; i < sources.size(); ++i) {
              at::Tensor(targets[i]).copy_(sources[i], /*non_blocking=*/true);
            }
            return targets;
          },
          [=](const std::vector<at::Tensor>& results) {
            bool right = true;
            for (const auto& result : results) {
              right = right && result.cpu().equal(values);
              at::Tensor(result).zero_();
            }
            return right;
          },
          copies.device.is_cpu() ? 0 : static_cast<double>(copies.count * copies.bytes) / 1e12};
}

void add_copies(const Copies& copies) {
  const std::string direction = copies.to_device ? "to device" : "to host";
  const std::string memory = copies.device.is_cpu() ? "within host memory"
                             : copies.is_pinned     ? direction + ", pinned"
                                                    : direction + ", pageable";
  const std::string name = "transfer/" + label(copies.device) + "/" + memory + "/" +
                           std::to_string(copies.count) + "/" + std::to_string(copies.bytes);
  add_benchmark(name, [=] { return contender_of(copies, name); },
                {.bytes = static_cast<double>(copies.count * copies.bytes)});
}

// The largest copy. The host or the device holds its data three times.
std::int64_t most_bytes(c10::Device device) {
  const double host =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  const auto free_bytes = use_gpu::memory_report(device).free_bytes;
  const double free = free_bytes ? static_cast<double>(*free_bytes) : host;
  return static_cast<std::int64_t>(std::min({0x1p30, host / 8, free / 4}));
}

}  // namespace

int main(int argc, char** argv) {
  const auto device = use_gpu::try_gpu();
  const auto most = most_bytes(device);
  for (const bool to_device : {true, false}) {
    for (const bool is_pinned : {false, true}) {
      if (device.is_cpu() && (is_pinned || !to_device)) continue;
      for (std::int64_t bytes = 4; bytes <= most; bytes *= 16) {
        add_copies({device, to_device, is_pinned, 1, bytes});
      }
      add_copies({device, to_device, is_pinned, 1000, 4096});
      add_copies({device, to_device, is_pinned, 1, 1000 * 4096});
    }
  }
  return run_benchmarks(argc, argv);
}
