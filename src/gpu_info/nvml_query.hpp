// SPDX-License-Identifier: MIT
//
// NVML's answers as a GpuReport.
#pragma once

#include <use_gpu/gpu_info.hpp>

namespace use_gpu::detail {

/// query_gpus(), from that library: the driver's, or a fake one in a test.
[[nodiscard]] GpuReport query_gpus_from(const std::string& library);

}  // namespace use_gpu::detail
