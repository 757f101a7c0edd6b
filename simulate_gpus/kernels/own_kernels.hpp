// SPDX-License-Identifier: MIT
//
// Operations that simulated GPUs do not leave to the CPU's kernel of the same name.
#pragma once

#include <torch/library.h>

#include <optional>
#include <string>

namespace simulate_gpus {

inline bool is_given(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined();
}

/// "add.out" of aten's operation.
std::string short_name(const c10::OperatorName& name);

/// For kernels of aten's operations of this key, which stay until the end of the process.
torch::Library& library_of(c10::DispatchKey key);

/// An operation of k_own_namespace (kernels/operation.hpp), computed on the host: for compute().
void add_on_host(c10::FunctionSchema schema, torch::CppFunction function);

/// Makes an operation of aten ("add.out") of what computes it on the host from its arguments there, as one operation of the GPU.
/// Nothing where this LibTorch has none of the name.
void add_at_once(torch::Library& library, const std::string& name, torch::CppFunction function);

/// cat of few values.
void add_cat(torch::Library& library);

/// The commonest operations, which are called without boxes.
void add_unboxed(torch::Library& library);

/// copy_: transfers stay LibTorch's own; what a CUDA kernel would do within a device is computed.
void add_copy(torch::Library& library);

/// GPU-only operations that modules of torch::nn need: the fused cells of LSTM and GRU, dropout.
void add_gpu_only(torch::Library& library);

/// Products of float8 and of four bits, which a GPU scales.
void add_scaled_products(torch::Library& library);

/// What LibTorch gives to cuDNN. In a dry run without recurrent layers and ctc_loss, for which LibTorch then has its own.
void add_cudnn(torch::Library& library);

/// Fused attention.
void add_attention(torch::Library& library);

/// Recurrent layers, for add_cudnn.
void add_recurrent(torch::Library& library);

/// The parts of a batch normalization over several GPUs.
void add_batch_norm(torch::Library& library);

/// Not kernels: what follows the program's memory and operations, where that is wanted.
void add_observers();

/// For a dry run: operations of NVIDIA's libraries, which count as one kernel each.
void add_library_operations(torch::Library& library);

/// The functions that models compiled by AOTInductor call.
void replace_compiled_calls();

}  // namespace simulate_gpus
