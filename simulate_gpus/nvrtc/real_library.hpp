// SPDX-License-Identifier: MIT
#pragma once

namespace simulate_gpus {

/// A function of NVIDIA's libnvrtc, which lies where LibTorch or a CUDA Toolkit has it; null if there is
/// none, which the first time is said on stderr.
void* real_nvrtc(const char* function);

}  // namespace simulate_gpus
