// SPDX-License-Identifier: MIT
#include "core/device_cuda.hpp"

#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstdio>

#include "gpu_info/message.hpp"

namespace use_gpu::detail {
namespace {

// The result of a CUDA call. Clears CUDA's last error, which LibTorch would otherwise read after
// the program's next kernel.
cudaError_t answer(cudaError_t code) {
  if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
  return code;
}

// CUDA writes 12.4 as 12040, and no version as 0.
std::string version(int number) {
  if (number == 0) return {};
  return std::to_string(number / 1000) + '.' + std::to_string(number % 1000 / 10);
}

}  // namespace

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
  cudaDeviceProp card;
  if (!device.is_cuda() || answer(cudaGetDeviceProperties(&card, device.index())) != cudaSuccess)
    return std::nullopt;
  auto uuid = hex(std::as_bytes(std::span(card.uuid.bytes)));
  for (const std::size_t place : {20U, 16U, 12U, 8U}) uuid.insert(place, "-");
  char model[sizeof card.name + 60];
  std::snprintf(model, sizeof model, "%s, compute capability %d.%d, %.1f GiB", card.name,
                card.major, card.minor, static_cast<double>(card.totalGlobalMem) / (1 << 30));
  return CudaCard{"GPU-" + uuid, card.totalGlobalMem, model};
}

const GpuInfo* find_card(const CudaCard& card, const GpuReport& report) {
  const auto info = std::ranges::find(report.gpus, card.uuid, &GpuInfo::uuid);
  if (info == report.gpus.end() || !info->memory_free_bytes) return nullptr;
  // A whole one lacks only what the driver keeps.
  return card.total_bytes < info->memory_total_bytes.value_or(0) / 10 * 9 ? nullptr : &*info;
}

std::optional<CudaFacts> cuda_facts() {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t code = answer(cudaGetDeviceCount(&count));
  answer(cudaDriverGetVersion(&driver));
  answer(cudaRuntimeGetVersion(&runtime));
  CudaFacts facts{.driver_version = version(driver), .runtime_version = version(runtime)};
  if (code != cudaSuccess)
    facts.error = "CUDA error " + std::to_string(code) + ": " + cudaGetErrorString(code);
  return facts;
}

void read_allocator_settings() {
  c10::CachingAllocator::AcceleratorAllocatorConfig::instance();
  c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::instance();
}

}  // namespace use_gpu::detail
