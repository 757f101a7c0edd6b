// SPDX-License-Identifier: MIT
//
// The memory of LibTorch's tensors, as the program requested it (kernels/observers.cpp tells of each block).
#include <array>
#include <mutex>
#include <unordered_map>

#include "interface.hpp"
#include "settings.hpp"
#include "tool.hpp"

using namespace simulate_gpus;

namespace {

// Never destroyed: LibTorch frees tensors until the very end of a process.
struct Tensors {
  std::mutex mutex;  // callers hold locks of LibTorch's allocator
  std::unordered_map<const void*, std::uint64_t> live;
  std::array<std::uint64_t, k_most_gpus> live_bytes{};
};

Tensors& tensors() {
  static auto* const tensors = new Tensors;
  return *tensors;
}

}  // namespace

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
