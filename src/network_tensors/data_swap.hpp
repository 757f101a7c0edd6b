// SPDX-License-Identifier: MIT
//
// Gives tensors other data, on another device maybe; each keeps its identity. All goes back unless
// commit() is reached.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <utility>
#include <vector>

namespace use_gpu::detail {

/// A copy of x to be its data on that device: made in inference mode if x was, and only then, as
/// otherwise later writes or reads would be refused.
[[nodiscard]] at::Tensor data_on(c10::Device device, const at::Tensor& x);

class DataSwap {
 public:
  DataSwap() = default;
  ~DataSwap();
  DataSwap(const DataSwap&) = delete;
  DataSwap& operator=(const DataSwap&) = delete;

  void swap(const at::Tensor& tensor, const at::Tensor& data);
  void commit() noexcept { swapped_.clear(); }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> swapped_;  // and what it had before
};

}  // namespace use_gpu::detail
