// SPDX-License-Identifier: MIT
#include "tensor_memory.hpp"

#include <array>
#include <mutex>
#include <unordered_map>

#include "check.hpp"
#include "current_operation.hpp"
#include "interface.hpp"
#include "settings.hpp"
#include "trace.hpp"
#include "trace_file.hpp"

namespace simulated_cuda {
namespace {

// Never destroyed: LibTorch frees tensors until the very end of a process.
struct Tensors {
  std::mutex mutex;  // the last: callers hold locks of LibTorch's allocator
  std::unordered_map<const void*, std::uint64_t> live;
  std::array<std::uint64_t, k_most_gpus> live_bytes{};
  std::array<TensorPeak, k_most_gpus> peaks;
};

Tensors& tensors() {
  static auto* const tensors = new Tensors;
  return *tensors;
}

}  // namespace

TensorPeak tensor_peak(int device) {
  const std::scoped_lock lock(tensors().mutex);
  return tensors().peaks[static_cast<std::size_t>(device)];
}

}  // namespace simulated_cuda

using namespace simulated_cuda;

bool simulated_cuda_is_followed() { return settings().summary || is_checked() || has_trace_file(); }

void simulated_cuda_note_block(int device, const void* address, std::uint64_t bytes,
                               simulated_cuda_block what) {
  check_block(address, bytes, what);
  if (what == simulated_cuda_block_released) return;  // it was live until its owner freed it
  const std::scoped_lock lock(tensors().mutex);
  auto& live = tensors().live_bytes[static_cast<std::size_t>(device)];
  if (what == simulated_cuda_block_given) {
    tensors().live[address] = bytes;
    live += bytes;
  } else if (const auto given = tensors().live.extract(address)) {  // else before it was followed
    live -= given.mapped();
  }
  trace_memory(device, "tensors", live);
  TensorPeak& peak = tensors().peaks[static_cast<std::size_t>(device)];
  if (live > peak.bytes) peak = {live, current_operation()};
}
