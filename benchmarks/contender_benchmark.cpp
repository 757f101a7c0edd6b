// SPDX-License-Identifier: MIT
#include "contender_benchmark.hpp"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <benchmark/benchmark.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <utility>

namespace {

bool all_right = true;

std::string label_of(const Contender& contender) {
  std::set<std::string> labels;
  for (const auto& device : contender.devices) labels.insert(label(device));
  std::string text;
  for (const auto& one : labels) text += (text.empty() ? "" : ", ") + one;
  return text;
}

void measure_one(benchmark::State& state, const Contender& contender, Amount amount) {
  auto results = run(contender);
  const auto check = [&] {
    if (contender.is_right(results)) return true;
    all_right = false;
    state.SkipWithError("WRONG RESULT");
    return false;
  };
  if (!check()) return;
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) results = run(contender);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (!check()) return;
  if (took.count() < contender.least_seconds * static_cast<double>(state.iterations())) {
    state.SkipWithError("faster than hardware can be");
    all_right = false;
    return;
  }
  state.SetLabel(label_of(contender));
  const auto each_run = benchmark::Counter::kIsIterationInvariantRate;
  if (amount.operations > 0) state.counters["FLOP/s"] = {amount.operations, each_run};
  if (amount.bytes > 0) state.counters["bytes/s"] = {amount.bytes, each_run};
}

// The number of physical cores that this process may use.
int usable_cores() {
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof(usable), &usable) != 0) return 0;
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                       "/topology/thread_siblings_list");
    std::string siblings = std::to_string(cpu);  // itself, if the list is missing
    std::getline(file, siblings);
    cores.insert(siblings);
  }
  return static_cast<int>(cores.size());
}

// "mkl", as LibTorch was configured.
std::string blas() {
  const std::string config = at::show_config(), key = "BLAS_INFO=";
  const auto start = config.find(key);
  if (start == std::string::npos) return "none";
  return config.substr(start + key.size(),
                       config.find_first_of(", \n", start) - start - key.size());
}

}  // namespace

void add_benchmark(const std::string& name, std::function<Contender()> make, Amount amount) {
  benchmark::RegisterBenchmark(name.c_str(), [make = std::move(make),
                                              amount](benchmark::State& state) {
    measure_one(state, make(), amount);
  })->UseRealTime();
}

int run_benchmarks(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("machine", machine());
  benchmark::AddCustomContext("BLAS", blas());
  const auto fast = {"mkl", "open", "blis", "flexi", "accelerate", "nvpl", "arm"};
  if (std::ranges::find(fast, blas()) == fast.end()) {
    benchmark::AddCustomContext("warning: products on the CPU are slow", "BLAS is " + blas());
  }
  if (const int cores = usable_cores(), threads = at::get_num_threads(); threads < cores) {
    benchmark::AddCustomContext("warning: cores left idle",
                                "LibTorch uses " + std::to_string(threads) + " threads on " +
                                    std::to_string(cores) + " cores");
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::ClearRegisteredBenchmarks();  // frees tensors before the CUDA driver ends
  benchmark::Shutdown();
  return all_right ? 0 : 1;
}
