// SPDX-License-Identifier: MIT
//
// Reads and writes a network's parameters, wherever it is. Everything is checked first:
//
//   auto values = use_gpu::read_parameters(net);           // copies, in host memory
//   use_gpu::write_parameters(net, {{"0.weight", w}});     // in place, where the network lives
//
// "Parameters" are the registered parameters and buffers, by their names ("0.weight"); undefined
// ones are left out. Many small tensors travel together, in few large transfers through pinned host
// memory, of which at most 32 MB are needed for each device and direction. Python's counterpart is
// `state_dict` with `load_state_dict`, which C++ does not have. In files: parameter_file.hpp.
//
// Threads: several may read one network at once. While one writes to a network, no other may use that
// network.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/module_ref.hpp>

#include <map>

namespace USE_GPU_EXPORT use_gpu {

/// Copies of all parameters and buffers in host memory, contiguous and without autograd; tied ones
/// stay tied.
///
/// Waits: for the devices.
///
/// Throws: ParameterError for a tensor without plain values (sparse, quantized, meta).
///
/// Chapter: exercise 2.
[[nodiscard]] std::map<std::string, at::Tensor> read_parameters(ConstModuleRef net);

/// Writes the values, from any device, into the parameters and buffers of these names; others are
/// left alone. In place: each keeps its TensorImpl, device and requires_grad, so optimizers go on
/// working. Autograd records nothing.
///
/// Waits: for what travels from or to the host.
///
/// Throws: ParameterError, before anything is written, for unknown names, other shapes or dtypes,
/// and tied names with different values; its differences() lists them all. If memory runs out
/// before the first write, nothing has changed either. For a write that the device refuses
/// LibTorch's error passes: the values on that device are then unspecified.
///
/// Chapter: exercise 2.
void write_parameters(ModuleRef net, const std::map<std::string, at::Tensor>& values);

/// The same, of what LibTorch's named_parameters() and named_buffers() return.
template <std::same_as<at::Tensor> T>
void write_parameters(ModuleRef net, const torch::OrderedDict<std::string, T>& values) {
  const auto pairs = values.pairs();
  write_parameters(net, {pairs.begin(), pairs.end()});
}

}  // namespace use_gpu
