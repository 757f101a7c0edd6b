// SPDX-License-Identifier: MIT
//
// How the exercises take their figures. One counts only if the work was warmed up, the devices were
// synchronized and the result is right: so the ways of doing something run in turn, round after
// round, and of one whose result is wrong no figure is told.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

/// One way of doing a piece of work.
struct Contender {
  std::string name;
  std::vector<c10::Device> devices;  // that are waited for before the clock is read
  std::function<std::vector<at::Tensor>()> work;
  std::function<bool(const std::vector<at::Tensor>&)> is_right;
  double least_seconds = 0;  // what no hardware can do in less: such a figure is not told either
};

/// Of one run.
struct Seconds {
  double median, least, most;
};

/// What came of a contender. A wrong result has no time, nor has a simulated GPU: it would be the
/// CPU's.
struct Figure {
  bool is_right = false;
  std::optional<Seconds> time = {};
};

/// Does the work once and waits for its devices. USE_GPU_PLANT_WRONG_RESULT=<name> in the
/// environment ruins that contender's results, so that the tests see what becomes of its figure.
[[nodiscard]] std::vector<at::Tensor> run(const Contender& contender);

/// What each takes, interleaved, for about `seconds` in all; at least three rounds after the one
/// that warms up. The results of the first and the last run are checked. On a terminal, says what it
/// is doing.
[[nodiscard]] std::vector<Figure> measure(const std::vector<Contender>& contenders, double seconds);

/// "12.3 ms" and the spread, or why there is no time: "WRONG RESULT", "right (simulated)".
[[nodiscard]] std::string text_of(const Figure& figure);

/// "1.23x": so many times longer takes `slow`. Empty where one of them has no time.
[[nodiscard]] std::string speed_up(const Figure& slow, const Figure& fast);

/// Whether it is a GPU that simulate_gpus has made: the CPU computes for it.
[[nodiscard]] bool is_simulated(c10::Device device);

/// The device's name for a row: "cuda:0", or "cuda:0 SIMULATED".
[[nodiscard]] std::string label(c10::Device device);

/// What every figure carries: CPU, threads, GPUs, LibTorch.
[[nodiscard]] std::string machine();
