// SPDX-License-Identifier: MIT
//
// What LibTorch, CUDA and the driver report about this machine's GPUs, and what it means in words. A
// pure function of these facts, so that tests can describe any machine.
#pragma once

#include <use_gpu/gpu_info.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace use_gpu::detail {

// Members have initializers so that a test names only those that matter to it.

/// The runtime's error text in one line, empty on success, and CUDA's name for it if there is one:
/// "cudaErrorNoDevice".
struct RuntimeError {
  std::string text = {};
  std::string name = {};
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

/// The cause and the next step, in at most 400 characters.
[[nodiscard]] std::string explain(const GpuFacts& facts);

}  // namespace use_gpu::detail
