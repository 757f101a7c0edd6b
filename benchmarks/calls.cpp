// SPDX-License-Identifier: MIT
//
// What each way of the exercises asks of a GPU: kernels, copies, waits, allocations. Counted, so
// the table is the same on every machine and needs no GPU:
//
//   simulate_gpus --dry-run 1 calls
#include <dlfcn.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <use_gpu/device.hpp>
#include <use_gpu/network.hpp>
#include <use_gpu/parameters.hpp>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "measuring/norm_log.hpp"

namespace {

using Count = std::uint64_t(const char* row);
Count* const count = reinterpret_cast<Count*>(dlsym(RTLD_DEFAULT, "simulated_cuda_count"));

struct Column {
  const char* name;
  std::vector<const char*> rows;  // of the summary, added up
};

const std::vector<Column> k_columns = {
    {"kernels", {"kernels"}},
    {"graphs", {"graph launches"}},
    {"on device", {"within a device copies"}},
    {"to device", {"host to device copies"}},
    {"to host", {"device to host copies"}},
    {"bytes", {"host to device bytes", "device to host bytes"}},
    {"waits", {"stream synchronizations", "event synchronizations", "device synchronizations"}},
    {"allocations", {"allocations", "pinned allocations"}}};

std::vector<std::uint64_t> counts() {
  std::vector<std::uint64_t> numbers;
  for (const auto& column : k_columns) {
    auto& number = numbers.emplace_back();
    for (const char* row : column.rows) number += count(row);
  }
  return numbers;
}

// Of the second run: the first one loads kernels and fills LibTorch's caches.
void print_row(const std::string& way, const std::function<void()>& work) {
  work();
  const auto before = counts();
  work();
  const auto after = counts();
  std::printf("%-38s", way.c_str());
  for (std::size_t i = 0; i < after.size(); ++i) {
    std::printf("  %11lld", static_cast<long long>(after[i] - before[i]));
  }
  std::puts("");
}

void print_heading(const char* what) {
  std::printf("\n%-38s", what);
  for (const auto& column : k_columns) std::printf("  %11s", column.name);
  std::puts("");
}

void exercise_2(c10::Device device) {
  print_heading("Exercise 2: 1000 parameters of 8x8");
  torch::nn::Module net;
  for (int i = 0; i < 1000; ++i)
    net.register_parameter("p" + std::to_string(i), torch::zeros({8, 8}));
  use_gpu::place(net, device);
  const auto values = use_gpu::read_parameters(net);
  print_row("read_parameters", [&] { (void)use_gpu::read_parameters(net); });
  print_row("read: a loop of cpu()", [&] {
    for (const auto& x : net.parameters()) (void)x.cpu();
  });
  print_row("write_parameters", [&] { use_gpu::write_parameters(net, values); });
  print_row("write: a loop of copy_", [&] {
    const torch::NoGradGuard no_grad;
    for (const auto& x : net.named_parameters()) x.value().copy_(values.at(x.key()));
  });
}

void exercise_3(c10::Device device) {
  print_heading("Exercise 3: 1000 products and norms");
  for (const auto& contender : norm_log_contenders(device)) {
    if (!contender.devices.empty()) print_row(contender.name, [&] { (void)contender.work(); });
  }
}

}  // namespace

int main() {
  if (count == nullptr) {
    std::fputs("calls: start it as: simulate_gpus --dry-run 1 calls\n", stderr);
    return 2;
  }
  std::puts("What each way asks of a GPU, by the kernels of LibTorch; a product is one kernel.");
  exercise_2(use_gpu::gpu());
  exercise_3(use_gpu::gpu());
}
