// SPDX-License-Identifier: MIT
#include "data_swap.hpp"

#include "log_message.hpp"

namespace use_gpu {

DataSwap::~DataSwap() {
  for (const auto& [tensor, before] : swapped_) {
    try {
      tensor.set_data(before);
    } catch (const std::exception& error) {  // maybe for want of memory: no text is put together
      log_message(LogLevel::error, "a failed move to another device could not be undone, because:");
      log_message(LogLevel::error, error.what());
    }
  }
}

void DataSwap::swap(const at::Tensor& tensor, const at::Tensor& data) {
  swapped_.emplace_back(tensor, tensor.detach());
  tensor.set_data(data);
}

}  // namespace use_gpu
