// SPDX-License-Identifier: MIT
#include "network_tensors/data_swap.hpp"

#include <ATen/ops/empty_like.h>
#include <c10/core/InferenceMode.h>
#include <use_gpu/log.hpp>

#include "copies/bulk_copy.hpp"
#include "copies/each_copy.hpp"
#include "network_tensors/parameter_differences.hpp"

namespace use_gpu::detail {

at::Tensor empty_on(c10::Device device, const at::Tensor& x, at::ScalarType dtype) {
  const c10::InferenceMode as_x(x.is_inference());
  return at::empty_like(x, x.options().device(device).dtype(dtype));
}

std::vector<at::Tensor> data_on(c10::Device device, at::TensorList tensors,
                                std::optional<at::ScalarType> dtype) {
  std::vector<at::Tensor> data;
  Pairs copies;
  for (const auto& x : tensors) {
    const auto new_dtype = dtype && x.is_floating_point() ? *dtype : x.scalar_type();
    if (trouble_with(x).empty()) {
      copies.add(x, data.emplace_back(empty_on(device, x, new_dtype)));
    } else {  // sparse ones, as LibTorch moves them
      const c10::InferenceMode as_x(x.is_inference());
      data.push_back(x.detach().to(device, new_dtype));
    }
  }
  const c10::InferenceMode inference;  // in which tensors that were made in it can be written too
  bulk_copy(copies.values, copies.targets);
  return data;
}

DataSwap::~DataSwap() {
  for (const auto& [tensor, before] : swapped_) {
    try {
      tensor.set_data(before);
    } catch (const std::exception& error) {  // possibly out of memory: build no text
      log_message(LogLevel::error, "a failed move to another device could not be undone, because:");
      log_message(LogLevel::error, error.what());
    }
  }
}

void DataSwap::swap(const at::Tensor& tensor, const at::Tensor& data) {
  swapped_.emplace_back(tensor, tensor.detach());
  tensor.set_data(data);
}

}  // namespace use_gpu::detail
