// SPDX-License-Identifier: MIT
#include "contender.hpp"

#include <ATen/Parallel.h>
#include <torch/version.h>
#include <unistd.h>
#include <use_gpu/device.hpp>
#include <use_gpu/gpu_info.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace {

constexpr std::size_t k_least_rounds = 3;
constexpr std::size_t k_most_rounds = 1001;

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool is_planted(const std::string& name) {
  const char* planted = std::getenv("USE_GPU_PLANT_WRONG_RESULT");
  return planted != nullptr && name == planted;
}

void show_progress(const std::string& text) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
}

// With three digits, or all that stand before the point.
std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.*f", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value);
  return text;
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(": ") + 2);
  }
  return "unknown CPU";
}

}  // namespace

std::vector<at::Tensor> run(const Contender& contender) {
  auto results = contender.work();
  for (const auto& device : contender.devices) use_gpu::synchronize(device);
  if (is_planted(contender.name)) results.front().add_(1);
  return results;
}

std::vector<std::optional<Seconds>> measure(const std::vector<Contender>& contenders,
                                            double seconds) {
  struct Course {
    const Contender& contender;
    bool is_right;
    std::vector<double> times;
    std::vector<at::Tensor> results;
  };
  std::vector<Course> courses;
  for (const auto& contender : contenders) {
    show_progress("warming up: " + contender.name);
    courses.push_back({contender, contender.is_right(run(contender)), {}, {}});
  }

  const auto start = Clock::now();
  for (std::size_t round = 0;
       round < k_least_rounds || (since(start) < seconds && round < k_most_rounds); ++round) {
    for (auto& [contender, is_right, times, results] : courses) {
      if (!is_right) continue;
      if (since(start) > 1) show_progress("round " + std::to_string(round) + ": " + contender.name);
      const auto run_start = Clock::now();
      results = run(contender);
      times.push_back(since(run_start));
    }
  }
  show_progress("");

  std::vector<std::optional<Seconds>> figures;
  for (auto& [contender, is_right, times, results] : courses) {
    if (!is_right || !contender.is_right(results)) {
      figures.emplace_back();
      continue;
    }
    std::sort(times.begin(), times.end());
    const Seconds figure{times[times.size() / 2], times.front(), times.back()};
    const bool can_be = figure.median >= contender.least_seconds;
    figures.push_back(can_be ? std::optional(figure) : std::nullopt);
  }
  return figures;
}

std::string text_of(const std::optional<Seconds>& figure) {
  if (!figure) return "WRONG RESULT";
  const double unit = figure->median < 1e-3 ? 1e6 : figure->median < 1 ? 1e3 : 1;
  const char* const name = unit == 1 ? "s" : unit == 1e3 ? "ms" : "us";
  return number(figure->median * unit) + " " + name + " (" + number(figure->least * unit) + " to " +
         number(figure->most * unit) + ")";
}

std::string label(c10::Device device) {
  return device.str() + (device.is_privateuseone() ? " SIMULATED" : "");
}

std::string machine() {
  std::string text = cpu_name() + ", " + std::to_string(at::get_num_threads()) + " threads; ";
  const auto report = use_gpu::query_gpus();
  for (const auto& gpu : report.gpus) text += gpu.name + ", ";
  return text + (report.gpus.empty() ? "no GPU; " : "CUDA " + report.cuda_version + "; ") +
         "LibTorch " TORCH_VERSION;
}
