// SPDX-License-Identifier: MIT
//
// Gives tensors new data, possibly on another device or of another dtype; each keeps its identity. Undone unless
// commit() is called.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <optional>
#include <utility>
#include <vector>

namespace use_gpu::detail {

/// Memory for x's data on that device, of that dtype. Made in inference mode exactly if x was:
/// otherwise LibTorch would refuse later writes or reads.
[[nodiscard]] at::Tensor empty_on(c10::Device device, const at::Tensor& x, at::ScalarType dtype);

/// Copies of the tensors' data in such memory, in few transfers; what is floating point in that
/// dtype, if there is one.
[[nodiscard]] std::vector<at::Tensor> data_on(c10::Device device, at::TensorList tensors,
                                              std::optional<at::ScalarType> dtype = {});

class DataSwap {
 public:
  DataSwap() = default;
  ~DataSwap();
  DataSwap(const DataSwap&) = delete;
  DataSwap& operator=(const DataSwap&) = delete;

  void swap(const at::Tensor& tensor, const at::Tensor& data);
  void commit() noexcept { swapped_.clear(); }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> swapped_;  // tensor, old data
};

}  // namespace use_gpu::detail
