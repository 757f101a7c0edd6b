// SPDX-License-Identifier: MIT
//
// What LibTorch, CUDA and the driver report about this machine's GPUs. The explanation is a pure
// function of these facts, so that tests can describe any machine.
#pragma once

#include <use_gpu/gpu_info.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace use_gpu::detail {

/// The values of cudaError_t with a more helpful text than CUDA's own. Repeated here because the
/// explanation is also compiled without CUDA; gpu_probe_cuda.cpp checks them.
enum CudaError : int {
  k_cuda_out_of_memory = 2,
  k_cuda_initialization = 3,
  k_cuda_stub_library = 34,
  k_cuda_insufficient_driver = 35,
  k_cuda_devices_unavailable = 46,
  k_cuda_no_device = 100,
  k_cuda_invalid_device = 101,
  k_cuda_no_kernel_image = 209,
  k_cuda_operating_system = 304,
  k_cuda_not_supported = 801,
  k_cuda_system_not_ready = 802,
  k_cuda_compat_not_supported = 804,
  k_cuda_unknown = 999
};

// Members have initializers so that a test names only those that matter to it.

/// The runtime's error text in one line, empty on success, and its code if there is one.
struct RuntimeError {
  std::string text = {};
  int code = 0;
};

/// A GPU that num_gpus() counts.
struct ProbedGpu {
  /// As LibTorch's: "cuda:0".
  std::string name = {};
  /// "NVIDIA H200, compute capability 9.0"; empty where not known.
  std::string model = {};
  std::optional<std::uint64_t> memory_bytes = {};
  /// From one small operation on it.
  RuntimeError error = {};
};

/// CUDA's own report.
struct CudaFacts {
  /// From counting the devices.
  RuntimeError error = {};
  /// The newest CUDA that the driver runs, e.g. "12.4"; empty if there is no driver.
  std::string driver_version = {};
  std::string runtime_version = {};
  /// ProbedGpu::model of each device.
  std::vector<std::string> models = {};
};

struct GpuFacts {
  /// What LibTorch calls its GPUs: "cuda", "xpu" ...; empty if it has no accelerator.
  std::string kind = {};
  /// LibTorch has no accelerator, although it was built for CUDA.
  bool cuda_not_loaded = false;
  std::vector<ProbedGpu> gpus = {};
  /// From using the first GPU if none was counted; for CUDA see `cuda`.
  RuntimeError error = {};
  /// Present where the kind is NVIDIA's.
  std::optional<CudaFacts> cuda = {};
  GpuReport report = {};
  /// CUDA_VISIBLE_DEVICES, if it is set.
  std::optional<std::string> visible_devices = {};
  /// What configures LibTorch's allocator of GPU memory, as 'PYTORCH_ALLOC_CONF="foo:bar"'; empty
  /// where it is not set.
  std::string allocator_settings = {};
};

/// Collects all facts; runs one small operation on every GPU and waits.
[[nodiscard]] GpuFacts probe_gpus();

}  // namespace use_gpu::detail
