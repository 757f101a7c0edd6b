// SPDX-License-Identifier: MIT
//
// Which tensor has a piece of memory: LibTorch keeps what one tensor frees, and gives it to the next.
#pragma once

#include <cstdint>
#include <map>

namespace simulate_gpus {

class TensorBlocks {
 public:
  void give(std::uintptr_t begin, std::uintptr_t end, bool is_of_graph);
  void take_back(std::uintptr_t begin);

  /// The number of the tensor that has this byte, another one each time that the block is given; 0
  /// if none has it, or it is of a graph's own memory, which is given and taken within the graph.
  [[nodiscard]] std::uint64_t number_at(std::uintptr_t byte) const;

 private:
  struct Block {
    std::uintptr_t end;
    std::uint64_t number;
    bool is_given;
  };
  std::map<std::uintptr_t, Block> blocks_;  // by their begin
  std::uint64_t last_number_ = 0;
};

}  // namespace simulate_gpus
