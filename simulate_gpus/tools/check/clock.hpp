// SPDX-License-Identifier: MIT
//
// What is known to be done: of each stream, how many of its operations (a vector clock). A stream
// knows its own, and those that it has waited for; the host those that it has waited for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace simulate_gpus {

class Clock {
 public:
  [[nodiscard]] bool knows(std::size_t stream, std::uint64_t operation) const {
    return stream < done_.size() && done_[stream] >= operation;
  }

  void join(const Clock& other) {
    if (done_.size() < other.done_.size()) done_.resize(other.done_.size());
    for (std::size_t i = 0; i < other.done_.size(); ++i)
      done_[i] = std::max(done_[i], other.done_[i]);
  }

  /// The number of the stream's next operation, which is known from now on.
  std::uint64_t next(std::size_t stream) {
    if (done_.size() <= stream) done_.resize(stream + 1);
    return ++done_[stream];
  }

 private:
  std::vector<std::uint64_t> done_;
};

}  // namespace simulate_gpus
