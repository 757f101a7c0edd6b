// SPDX-License-Identifier: MIT
//
// The memory of LibTorch's tensors, as the program requested it (kernels/observers.cpp tells of each block).
#include "tensor_memory.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <mutex>

#include "interface.hpp"
#include "settings.hpp"
#include "tool.hpp"

namespace simulate_gpus {
namespace {

// LibTorch's blocks begin at multiples of it.
constexpr std::size_t k_block = 512;

// Never destroyed: LibTorch frees tensors until the very end of a process.
struct Tensors {
  std::mutex mutex;  // callers hold locks of LibTorch's allocator
  std::map<const void*, std::uint64_t> live;
  std::array<std::uint64_t, k_most_gpus> live_bytes{};
};

Tensors& tensors() {
  static auto* const tensors = new Tensors;
  return *tensors;
}

}  // namespace

Extent tensor_around(const Extent& allocation, const void* address) {
  const auto* begin = static_cast<const char*>(allocation.begin);
  const auto* end = begin + allocation.bytes;
  const auto* const byte = static_cast<const char*>(address);
  const std::scoped_lock lock(tensors().mutex);
  const auto& live = tensors().live;
  const auto after = live.upper_bound(address);
  if (after != live.begin()) {
    const auto& [tensor, bytes] = *std::prev(after);
    const auto* const first = static_cast<const char*>(tensor);
    const auto* const past = first + (bytes + k_block - 1) / k_block * k_block;
    begin = std::max(begin, byte < past ? first : past);
    if (byte < past) end = std::min(end, past);
  }
  if (after != live.end()) end = std::min(end, static_cast<const char*>(after->first));
  return {begin, static_cast<std::size_t>(end - begin)};
}

}  // namespace simulate_gpus

using namespace simulate_gpus;

void simulate_gpus::tell_block(int device, const void* address, std::uint64_t bytes,
                               BlockChange what) {
  const std::scoped_lock lock(tensors().mutex);
  auto& live = tensors().live_bytes[static_cast<std::size_t>(device)];
  if (what == BlockChange::given) {
    tensors().live[address] = bytes;
    live += bytes;
  } else if (what == BlockChange::freed) {  // released later, it was live until here
    if (const auto given = tensors().live.extract(address)) live -= given.mapped();
  }
  tell(&Tool::changes, TensorBlock{device, address, bytes, live, what});
}
