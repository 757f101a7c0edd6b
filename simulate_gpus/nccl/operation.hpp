// SPDX-License-Identifier: MIT
//
// A collective or a message, seen from one rank, in two steps: it gives its part to the others, and
// takes theirs.
#pragma once

#include <driver_types.h>

#include <memory>
#include <vector>

#include "nccl/rank.hpp"
#include "runtime/interface.hpp"

namespace simulate_gpus::nccl {

struct Operation {
  std::shared_ptr<Rank> self = {};
  Call call = {};
  int peer = 0;  // of a message
  const void* from = nullptr;
  void* to = nullptr;
  cudaStream_t stream = nullptr;
  Scalar scalar = {};        // of a reduction that the program made
  std::uint64_t number = 0;  // set when it is given to its stream
  bool is_alone = false;     // in its group: `from` is still what was given when it takes

  [[nodiscard]] Duty duty() const;

  /// Writes this rank's part into the shared file. False if that cannot be done yet, because the
  /// others are far behind. std::runtime_error if the communicator has failed.
  [[nodiscard]] bool try_give() const;

  /// Computes what this rank gets. False if not all parts are there; then the other ranks know that
  /// this one waits. std::runtime_error if the ranks' calls differ, which ends the communicator.
  [[nodiscard]] bool try_take() const;

  /// The memory of this rank that it uses.
  [[nodiscard]] std::vector<MemoryRange> ranges() const;

  /// Whether the sender of such a message waits for its receipt: of one that NCCL's buffers do not
  /// hold (NCCL_BUFFSIZE bytes).
  [[nodiscard]] bool waits_for_receipt() const;

 private:
  [[nodiscard]] bool gives(int rank) const;
  [[nodiscard]] bool takes_from(int rank) const;
  [[nodiscard]] std::uint64_t given_bytes() const;
  [[nodiscard]] std::uint32_t takers() const;
  [[nodiscard]] Part& own_part() const;
  void write_part(std::uint64_t begin, std::uint64_t bytes) const;
  [[nodiscard]] bool try_take_message() const;
  void compare_calls() const;
  void compute() const;
};

}  // namespace simulate_gpus::nccl
