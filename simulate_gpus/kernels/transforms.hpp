// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

namespace simulate_gpus {

/// Gives the result of _fft_c2c, _fft_c2r or _fft_r2c the strides that it has on a GPU, which follow from how LibTorch splits
/// a transform for cuFFT.
void lay_out_transform(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments,
                       torch::jit::Stack& results);

}  // namespace simulate_gpus
