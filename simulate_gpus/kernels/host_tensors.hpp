// SPDX-License-Identifier: MIT
//
// CUDA tensors as the CPU's kernels see them. A view uses the memory of the tensor without owning
// it: streams order all accesses, as on a GPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace simulate_gpus {

/// What is to be written, and its new values: CUDA tensors if that happens at once, views of them (on_host) if later.
using Writes = c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 1>;

/// A CPU tensor over the memory of a CUDA tensor, with its sizes, strides and layout; of a sparse or
/// nested one, over the memory of its parts. Any other tensor is itself.
at::Tensor host_view(const at::Tensor& tensor);

/// The memory of CUDA tensors, as one of the CPU; and the view of a strided tensor in it, or in a copy.
c10::Storage host_storage(const c10::Storage& storage);
at::Tensor host_view(const at::Tensor& tensor, c10::Storage on_host, std::int64_t offset);

/// Calls visit(part) for each strided tensor of which a CUDA tensor consists: itself, or the indices and
/// values of a sparse one, or the buffer of a nested one.
void for_each_part(const at::Tensor& tensor, const std::function<void(const at::Tensor&)>& visit);

/// The same values in memory of their own. What is expanded stays so.
at::Tensor copied(const at::Tensor& view);

/// A new tensor like the CPU tensor on the current device, whose values are still to be written.
at::Tensor make_device_tensor(const at::Tensor& host, Writes& writes);

/// Turns a CPU tensor into one on the current device, with the same values: only its memory is another. This can be done to one that
/// nobody else has, and that owns its memory; any other stays as it is, and the answer is false.
bool move_to_device(const at::Tensor& host);

/// Gives a tensor that is written the sizes of its result, and if they are others the strides too.
void resize_like(const at::Tensor& tensor, const at::Tensor& result);

/// Gives the CUDA tensor the sizes of the CPU tensor, and adds its values to `writes`, unless the
/// CPU tensor is a view of the same memory.
void update_device_tensor(const at::Tensor& tensor, const at::Tensor& host, Writes& writes);

/// The same writes into views: what waits for its stream must not keep memory of the device.
Writes on_host(Writes writes);

/// Writes the values.
void write(const Writes& writes);

}  // namespace simulate_gpus
