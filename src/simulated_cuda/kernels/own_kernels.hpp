// SPDX-License-Identifier: MIT
//
// Operations that simulated GPUs do not leave to the CPU's kernel of the same name.
#pragma once

#include <torch/library.h>

namespace use_gpu::simulated_cuda {

/// copy_: transfers stay LibTorch's own; what a CUDA kernel would do within a device is computed.
void add_copy(torch::Library& library);

/// GPU-only operations that modules of torch::nn need: the fused cells of LSTM and GRU, dropout,
/// and calls to cuDNN.
void add_gpu_only(torch::Library& library);

/// Fused attention.
void add_attention(torch::Library& library);

/// The parts of a batch normalization over several GPUs.
void add_batch_norm(torch::Library& library);

/// For a dry run: operations of NVIDIA's libraries, which count as one kernel each.
void add_library_operations(torch::Library& library);

}  // namespace use_gpu::simulated_cuda
