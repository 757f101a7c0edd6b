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

/// Does the work once and waits for its devices. USE_GPU_PLANT_WRONG_RESULT=<name> in the
/// environment ruins that contender's results, so that the tests see what becomes of its figure.
[[nodiscard]] std::vector<at::Tensor> run(const Contender& contender);

/// What each takes, interleaved, for about `seconds` in all; at least three rounds after the one
/// that warms up. Nothing where the result of the first or the last run was wrong. On a terminal,
/// says what it is doing.
[[nodiscard]] std::vector<std::optional<Seconds>> measure(const std::vector<Contender>& contenders,
                                                          double seconds);

/// "12.3 ms" and the spread, "WRONG RESULT" where there is none.
[[nodiscard]] std::string text_of(const std::optional<Seconds>& figure);

/// The device's name for a row: what is timed on a simulated GPU is the CPU, and says so.
[[nodiscard]] std::string label(c10::Device device);

/// What every figure carries: CPU, threads, GPUs, LibTorch.
[[nodiscard]] std::string machine();
