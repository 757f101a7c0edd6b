// SPDX-License-Identifier: MIT
//
// What exercise 1's products in bf16 are compared with: cuBLASLt called with nothing in between.
#pragma once

#include <cstdint>
#include <functional>

#include "timing/timing.hpp"

#ifdef USE_GPU_WITH_CUBLASLT

/// Makes the product of two random n by n matrices in bf16, into memory that is there already, by the
/// algorithm that cuBLASLt recommends. Nothing for any device but a real CUDA GPU.
[[nodiscard]] std::function<Contender()> cublaslt_contender(std::int64_t n, c10::Device device);

#else

inline std::function<Contender()> cublaslt_contender(std::int64_t, c10::Device) { return nullptr; }

#endif
