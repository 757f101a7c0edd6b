// SPDX-License-Identifier: MIT
//
// CUDA tensors as the CPU's kernels see them. A view has the memory of the tensor and does not keep
// it: what happens to memory is ordered by streams, as on a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace use_gpu::simulated_cuda {

/// Bytes that are to be written when their stream comes to it: a view of device memory, and what
/// goes there.
using Writes = std::vector<std::pair<at::Tensor, at::Tensor>>;

/// A CPU tensor over the memory of a CUDA tensor, with its sizes, strides and layout; of a sparse
/// one, over the memory of its parts. Any other tensor is itself.
at::Tensor host_view(const at::Tensor& tensor);

/// A new CUDA tensor like the CPU tensor, whose values are still to be written.
at::Tensor make_device_tensor(const at::Tensor& host, c10::Device device, Writes& writes);

/// Makes the CUDA tensor what the CPU tensor is, with its sizes; values are still to be written.
/// Nothing is to be written where the CPU tensor is a view of its memory.
void update_device_tensor(const at::Tensor& tensor, const at::Tensor& host, Writes& writes);

/// Writes the values.
void write(const Writes& writes);

}  // namespace use_gpu::simulated_cuda
