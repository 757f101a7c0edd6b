// SPDX-License-Identifier: MIT
//
// What has no device-generic form: CUDA's contexts, graphs, cards, versions and settings. Compiled
// where LibTorch has CUDA.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <use_gpu/gpu_info.hpp>

namespace use_gpu::detail {

/// The card that a CUDA device is.
struct CudaCard {
  std::string uuid;  // as NVML writes it, "GPU-12345678-..."
  std::uint64_t total_bytes = 0;
  std::string model = {};  // "NVIDIA H200, compute capability 9.0, 139.8 GiB"
};

/// What CUDA's runtime says when it counts the devices.
struct CudaFacts {
  /// "CUDA error 100: no CUDA-capable device is detected"; empty on success.
  std::string error = {};
  /// The newest CUDA that the driver runs, e.g. "12.4"; empty if there is no driver.
  std::string driver_version = {};
  std::string runtime_version = {};
};

#ifdef USE_GPU_WITH_CUDA

/// Makes the context of a CUDA device this thread's current one. LibTorch's guards skip that for
/// GPU 0 in a new thread, and its first use of cuBLAS there then warns "there was no current CUDA
/// context".
void bind_context(c10::Device device);

/// Whether a CUDA graph is being captured from that stream.
[[nodiscard]] bool is_captured(c10::Stream stream);

/// Nothing for another device. Makes no context.
[[nodiscard]] std::optional<CudaCard> card_of(c10::Device device);

/// That card in NVML's report. Null if it is not there, if its memory is unknown, or if the device
/// is a slice of it (MIG), which has much less memory.
[[nodiscard]] const GpuInfo* find_card(const CudaCard& card, const GpuReport& report);

/// Makes no context.
[[nodiscard]] std::optional<CudaFacts> cuda_facts();

/// Has LibTorch read the settings of its allocator of GPU memory. Throws if it cannot; were that left
/// to the first use of a GPU, the second would crash.
void read_allocator_settings();

#else

inline void bind_context(c10::Device) {}
inline bool is_captured(c10::Stream) { return false; }
inline std::optional<CudaCard> card_of(c10::Device) { return std::nullopt; }
inline const GpuInfo* find_card(const CudaCard&, const GpuReport&) { return nullptr; }
inline std::optional<CudaFacts> cuda_facts() { return std::nullopt; }
inline void read_allocator_settings() {}

#endif

}  // namespace use_gpu::detail
