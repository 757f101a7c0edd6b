// SPDX-License-Identifier: MIT
#include "device/device_cuda.hpp"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <cstddef>
#include <span>

#include "messages/message.hpp"

namespace use_gpu::detail {

void bind_context(c10::Device device) {
  if (device.is_cuda()) C10_CUDA_CHECK(c10::cuda::SetDevice(device.index(), /*force=*/true));
}

bool is_captured(c10::Stream stream) {
  if (!stream.device().is_cuda()) return false;
  auto status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::CUDAStream(stream), &status));
  return status != cudaStreamCaptureStatusNone;
}

std::optional<CudaCard> card_of(c10::Device device) {
  cudaDeviceProp properties;
  if (!device.is_cuda()) return std::nullopt;
  if (cudaGetDeviceProperties(&properties, device.index()) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // LibTorch would read it after its next kernel
    return std::nullopt;
  }
  auto uuid = hex(std::as_bytes(std::span(properties.uuid.bytes)));
  for (const std::size_t place : {20U, 16U, 12U, 8U}) uuid.insert(place, "-");
  return CudaCard{"GPU-" + uuid, properties.totalGlobalMem};
}

const GpuInfo* find_card(const CudaCard& card, const GpuReport& report) {
  for (const auto& info : report.gpus) {
    if (info.uuid != card.uuid || !info.memory_free_bytes || !info.memory_total_bytes) continue;
    // A whole one lacks only what the driver keeps.
    return card.total_bytes < *info.memory_total_bytes / 10 * 9 ? nullptr : &info;
  }
  return nullptr;
}

}  // namespace use_gpu::detail
