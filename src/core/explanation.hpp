// SPDX-License-Identifier: MIT
//
// What LibTorch, CUDA and the driver report about this machine's GPUs, and what it means in words. A
// pure function of these facts, so that tests can describe any machine.
#pragma once

#include "core/device_cuda.hpp"

namespace use_gpu::detail {

// Members have initializers so that a test names only those that matter to it.

/// A GPU that num_gpus() counts.
struct ProbedGpu {
  /// As LibTorch's: "cuda:0".
  std::string name = {};
  /// "NVIDIA H200, compute capability 9.0, 139.8 GiB"; empty where not known.
  std::string model = {};
  /// What one small operation on it reports, in one line; empty on success.
  std::string error = {};
};

struct GpuFacts {
  /// What LibTorch calls its GPUs: "cuda", "xpu" ...; empty if it has no accelerator.
  std::string kind = {};
  /// LibTorch has no accelerator, although it was built for CUDA.
  bool cuda_not_loaded = false;
  std::vector<ProbedGpu> gpus = {};
  /// From using the first GPU if none was counted; for CUDA see `cuda`.
  std::string error = {};
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
