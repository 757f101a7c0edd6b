// SPDX-License-Identifier: MIT
#include "kernels/accesses.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/host_tensors.hpp"
#include "runtime/interface.hpp"

namespace simulate_gpus {
namespace {

using Ranges = std::vector<MemoryRange>;

// A dimension, in bytes.
struct Dimension {
  std::uintptr_t stride, size;
};

// The bytes of a strided tensor, and none between: a column of a matrix has a range for each row. Of
// more ranges than this the first are taken, so that no operation takes seconds.
void add_strided(const at::Tensor& tensor, bool writes, Ranges& ranges) {
  constexpr std::size_t k_most = std::size_t{1} << 16;
  if (tensor.numel() == 0) return;
  std::uintptr_t run = tensor.itemsize();
  std::vector<Dimension> dimensions;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) > 1 && tensor.stride(d) > 0) {
      dimensions.push_back({static_cast<std::uintptr_t>(tensor.stride(d)) * tensor.itemsize(),
                            static_cast<std::uintptr_t>(tensor.size(d))});
    }
  }
  std::ranges::sort(dimensions, {}, &Dimension::stride);
  auto outer = dimensions.begin();
  for (; outer != dimensions.end() && outer->stride <= run; ++outer)
    run += outer->stride * (outer->size - 1);
  std::vector<std::uintptr_t> begins{reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr())};
  for (; outer != dimensions.end(); ++outer) {
    const std::size_t inner = begins.size();
    for (std::uintptr_t i = 1; i < outer->size && begins.size() < k_most; ++i) {
      for (std::size_t k = 0; k < inner; ++k) begins.push_back(begins[k] + i * outer->stride);
    }
  }
  for (const std::uintptr_t begin : begins) ranges.push_back({begin, begin + run, writes});
}

void add(const c10::IValue& value, bool writes, Ranges& ranges) {
  for_each_tensor(value, [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cuda()) return;
    for_each_part(tensor, [&](const at::Tensor& part) { add_strided(part, writes, ranges); });
  });
}

}  // namespace

void check_accesses(cudaStream_t stream, const Operation& operation, const Values& arguments,
                    const Values& results) {
  Ranges ranges;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    // Whoever writes conflicts with all that whoever reads does.
    add(arguments[i], operation.writes[i], ranges);
  }
  for (std::size_t r = 0; r < results.size(); ++r) {
    if (!operation.returned[r]) add(results[r], /*writes=*/true, ranges);
  }
  tell_uses(stream, operation.schema().name(), ranges);
}

}  // namespace simulate_gpus
