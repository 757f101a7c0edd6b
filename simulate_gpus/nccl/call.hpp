// SPDX-License-Identifier: MIT
//
// What a rank asks for: all ranks must ask for the same.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <string>

namespace simulate_gpus::nccl {

enum class Kind {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  split,
  send,
  receive
};

/// A reduction that a program has made (ncclRedOpCreatePreMulSum), whichever: each rank has its own.
constexpr int k_made_reduction = ncclNumOps;

struct Call {
  Kind kind = Kind::split;
  ncclDataType_t type = ncclInt8;
  int reduction = ncclSum;  // an ncclRedOp_t, or k_made_reduction
  int root = 0;
  std::uint64_t count = 0;  // elements: of what one rank gives to one rank

  bool operator==(const Call&) const = default;
  [[nodiscard]] bool is_collective() const { return kind != Kind::send && kind != Kind::receive; }
  [[nodiscard]] bool reduces() const;
  [[nodiscard]] bool has_root() const;
  [[nodiscard]] std::uint64_t bytes() const;
};

/// "AllReduce".
[[nodiscard]] const char* name_of(Kind kind);

/// "ncclReduce of 8 float32, sum, root 0".
[[nodiscard]] std::string text_of(const Call& call);

}  // namespace simulate_gpus::nccl
