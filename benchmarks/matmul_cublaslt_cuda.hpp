// SPDX-License-Identifier: MIT
//
// What exercise 1's products in bf16 are compared with: cuBLASLt called with nothing in between.
#pragma once

#include <cstdint>

#include "measuring/contender.hpp"

/// The product of two random n by n matrices in bf16, into memory that is there already, by the
/// algorithm that cuBLASLt recommends.
[[nodiscard]] Contender cublaslt_contender(std::int64_t n, c10::Device device);
