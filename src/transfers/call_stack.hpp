// SPDX-License-Identifier: MIT
//
// Where in the program a transfer was asked for. Taking a stack costs microseconds; naming its call
// site, which reads symbols and debug information, happens later, when a ledger is read.
#pragma once

#include <compare>
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

/// The first function of the stack that is not LibTorch's, this library's or C++'s, with its line
/// if the program has debug information: "train(...) train.cpp:41", else "train(...) + 0x2f".
/// "backward" if the backward pass comes first, with the forward pass's call site if known.
std::string call_site(const CallStack& stack);

}  // namespace use_gpu::detail
