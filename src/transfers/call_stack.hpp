// SPDX-License-Identifier: MIT
//
// Where in the program a transfer was asked for. Taking a stack costs microseconds; naming its call
// site, which reads symbols and debug information, happens later, when a ledger is read.
#pragma once

#include <string>
#include <vector>

namespace use_gpu::detail {

/// The calls that a thread is in: where each returns to, the innermost first.
struct CallStack {
  std::vector<void*> calls;
  /// In a backward pass in LibTorch's anomaly mode: those that made its step in the forward pass.
  std::vector<void*> forward;

  /// Of this thread, now.
  static CallStack here();

  auto operator<=>(const CallStack&) const = default;
};

/// Of each stack the first function that is not LibTorch's, this library's or C++'s, with its line if
/// LibTorch finds debug information: "train(...) train.cpp:41", else its place in the program:
/// "train(...) + 0x2f41". "backward" if the backward pass comes first, with the forward pass's call
/// site if known.
std::vector<std::string> call_sites(const std::vector<const CallStack*>& stacks);

}  // namespace use_gpu::detail
