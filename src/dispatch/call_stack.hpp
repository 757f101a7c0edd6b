// SPDX-License-Identifier: MIT
//
// Where in the program a transfer was asked for. Taking a stack costs microseconds; naming its call
// site, which reads symbols and debug information, happens later, when a ledger is read.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dispatch/symbols.hpp"

namespace use_gpu::detail {

/// The calls that a thread is in.
struct CallStack {
  /// In the instruction of each call, the innermost first.
  std::vector<std::uintptr_t> addresses;
  /// The calls of the forward pass that made the step of the backward pass which is running.
  bool is_of_forward = false;

  /// Of this thread, now; in a backward pass in anomaly mode, of the forward pass.
  static CallStack here();

  auto operator<=>(const CallStack&) const = default;
};

/// Names the call sites of stacks, and remembers what it has looked up. Not thread-safe.
class CallSiteNames {
 public:
  /// The first function of the stack that is not LibTorch's, this library's or C++'s, with its line
  /// if the program has debug information: "train(...) train.cpp:41", else "train(...) + 0x2f".
  /// "backward" if the backward pass comes first.
  std::string name(const CallStack& stack);

 private:
  Symbols symbols_;
  std::map<std::uintptr_t, std::vector<Frame>> known_;
};

}  // namespace use_gpu::detail
