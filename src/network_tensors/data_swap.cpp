// SPDX-License-Identifier: MIT
#include "network_tensors/data_swap.hpp"

#include <c10/core/InferenceMode.h>
#include <use_gpu/log.hpp>

namespace use_gpu::detail {

at::Tensor data_on(c10::Device device, const at::Tensor& x) {
  const c10::InferenceMode as_x(x.is_inference());
  return x.detach().to(device);
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
