// SPDX-License-Identifier: MIT
#include "timing/timing.hpp"

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

#include "timing/timing_cuda.hpp"

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

// Three digits, or all before the decimal point.
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

std::vector<Figure> measure(const std::vector<Contender>& contenders, double seconds) {
  struct Course {
    const Contender& contender;
    bool is_timed, is_right;
    std::vector<double> times;
    std::vector<at::Tensor> results;
  };
  std::vector<Course> courses;
  for (const auto& contender : contenders) {
    show_progress("warming up: " + contender.name);
    const bool is_timed = std::ranges::none_of(contender.devices, is_simulated);
    courses.push_back({contender, is_timed, contender.is_right(run(contender)), {}, {}});
  }

  const auto start = Clock::now();
  const auto goes_on = [&](std::size_t round) {
    return round < k_least_rounds ||
           (since(start) < seconds && round < k_most_rounds &&
            std::ranges::any_of(courses, [](const Course& c) { return c.is_timed && c.is_right; }));
  };
  for (std::size_t round = 0; goes_on(round); ++round) {
    for (auto& [contender, is_timed, is_right, times, results] : courses) {
      if (!is_right || (!is_timed && round >= k_least_rounds)) continue;
      if (since(start) > 1) show_progress("round " + std::to_string(round) + ": " + contender.name);
      const auto run_start = Clock::now();
      results = run(contender);
      times.push_back(since(run_start));
    }
  }
  show_progress("");

  std::vector<Figure> figures;
  for (auto& [contender, is_timed, is_right, times, results] : courses) {
    auto& figure = figures.emplace_back();
    if (!is_right || !contender.is_right(results)) continue;
    std::sort(times.begin(), times.end());
    const Seconds time{times[times.size() / 2], times.front(), times.back()};
    figure.is_right = time.median >= contender.least_seconds;
    if (figure.is_right && is_timed) figure.time = time;
  }
  return figures;
}

std::string text_of(const Figure& figure) {
  if (!figure.is_right) return "WRONG RESULT";
  if (!figure.time) return "right (simulated)";
  const auto [median, least, most] = *figure.time;
  const double unit = median < 1e-3 ? 1e6 : median < 1 ? 1e3 : 1;
  const char* const name = unit == 1 ? "s" : unit == 1e3 ? "ms" : "us";
  return number(median * unit) + " " + name + " (" + number(least * unit) + " to " +
         number(most * unit) + ")";
}

std::string speed_up(const Figure& slow, const Figure& fast) {
  return slow.time && fast.time ? number(slow.time->median / fast.time->median) + "x" : "";
}

// simulate_gpus sets the variable in each program that it starts.
bool is_simulated(c10::Device device) {
  const char* started = std::getenv("SIMULATE_GPUS");
  return device.is_cuda() && started != nullptr && *started != '\0';
}

std::string label(c10::Device device) {
  return device.str() + (is_simulated(device) ? " SIMULATED" : "");
}

std::string machine() {
  std::string text = cpu_name() + ", " + std::to_string(at::get_num_threads()) + " threads; ";
  // Only GPUs that the program can use: the driver's report ignores CUDA_VISIBLE_DEVICES.
  for (int i = 0, same = 0; i < use_gpu::num_gpus(); i += same) {
    const auto model = model_of(use_gpu::gpu(i));
    for (same = 1; i + same < use_gpu::num_gpus() && model_of(use_gpu::gpu(i + same)) == model;)
      ++same;
    text += (same > 1 ? std::to_string(same) + " x " : "") + model + ", ";
  }
  return text +
         (use_gpu::num_gpus() == 0 ? "no GPU; "
                                   : "CUDA " + use_gpu::query_gpus().cuda_version + "; ") +
         "LibTorch " TORCH_VERSION;
}
