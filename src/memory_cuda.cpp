// SPDX-License-Identifier: MIT
#include "memory_cuda.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

#include "messages/message.hpp"

namespace use_gpu::detail {

std::optional<CudaCard> cuda_card(c10::Device device) {
  cudaDeviceProp properties;
  if (!device.is_cuda()) return std::nullopt;
  if (cudaGetDeviceProperties(&properties, device.index()) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // LibTorch would read it after its next kernel
    return std::nullopt;
  }
  auto uuid = hex(std::as_bytes(std::span(properties.uuid.bytes)));
  for (const std::size_t place : {20, 16, 12, 8}) uuid.insert(place, "-");
  return CudaCard{"GPU-" + uuid, properties.totalGlobalMem};
}

}  // namespace use_gpu::detail
