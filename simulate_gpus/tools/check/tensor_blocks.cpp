// SPDX-License-Identifier: MIT
#include "tools/check/tensor_blocks.hpp"

#include <iterator>

namespace simulate_gpus {

void TensorBlocks::give(std::uintptr_t begin, std::uintptr_t end, bool is_of_graph) {
  auto first = blocks_.lower_bound(begin);
  if (first != blocks_.begin() && std::prev(first)->second.end > begin) --first;
  blocks_.erase(first, blocks_.lower_bound(end));
  blocks_[begin] = {end, is_of_graph ? 0 : ++last_number_, true};
}

void TensorBlocks::take_back(std::uintptr_t begin) {
  if (const auto found = blocks_.find(begin); found != blocks_.end())
    found->second.is_given = false;
}

std::uint64_t TensorBlocks::number_at(std::uintptr_t byte) const {
  const auto after = blocks_.upper_bound(byte);
  if (after == blocks_.begin()) return 0;
  const auto& block = std::prev(after)->second;
  return byte < block.end && block.is_given ? block.number : 0;
}

}  // namespace simulate_gpus
