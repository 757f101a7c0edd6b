// SPDX-License-Identifier: MIT
//
// What only CUDA can tell of a device.
#pragma once

#include <c10/core/Device.h>

#include <string>

#ifdef USE_GPU_WITH_CUDA

/// The GPU's name, such as "NVIDIA H200"; empty for a device that is not CUDA's.
[[nodiscard]] std::string model_of(c10::Device device);

#else

inline std::string model_of(c10::Device) { return {}; }

#endif
