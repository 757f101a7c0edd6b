// SPDX-License-Identifier: MIT
//
// How benchmarks measure what they print. A time counts only after a warm-up, with synchronized
// devices and a right result: so contenders run in turn, in several rounds, and one with a wrong
// result reports no time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

/// One way of doing a piece of work.
struct Contender {
  std::string name;
  std::vector<c10::Device> devices;  // synchronized before the clock is read
  std::function<std::vector<at::Tensor>()> work;
  std::function<bool(const std::vector<at::Tensor>&)> is_right;
  double least_seconds = 0;  // less is impossible on any hardware: such a time is not reported
};

/// Per run.
struct Seconds {
  double median, least, most;
};

/// A contender's result. No time for a wrong result or on a simulated GPU, where it would be the
/// CPU's.
struct Figure {
  bool is_right = false;
  std::optional<Seconds> time = {};
};

/// Does the work once and waits for its devices. USE_GPU_PLANT_WRONG_RESULT=<name> in the
/// environment corrupts that contender's results, so that tests can check the report.
[[nodiscard]] std::vector<at::Tensor> run(const Contender& contender);

/// Measures all contenders, interleaved, for about `seconds` in all; at least three rounds after
/// the warm-up. Checks the results of the first and the last run. Shows progress on a terminal.
[[nodiscard]] std::vector<Figure> measure(const std::vector<Contender>& contenders, double seconds);

/// "12.3 ms" and the spread, or why there is no time: "WRONG RESULT", "right (simulated)".
[[nodiscard]] std::string text_of(const Figure& figure);

/// "1.23x": how many times longer `slow` takes. Empty if one has no time.
[[nodiscard]] std::string speed_up(const Figure& slow, const Figure& fast);

/// Whether it is a GPU that simulate_gpus has made: the CPU computes for it.
[[nodiscard]] bool is_simulated(c10::Device device);

/// The device's name for a row: "cuda:0", or "cuda:0 SIMULATED".
[[nodiscard]] std::string label(c10::Device device);

/// Printed with all times: CPU, threads, GPUs, LibTorch.
[[nodiscard]] std::string machine();
