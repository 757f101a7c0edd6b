// SPDX-License-Identifier: MIT
//
// Reads and writes a network's parameters on any device, and saves them in files without loss.
// torch::load accepts a tensor of another shape, ignores unknown names, and moves the network;
// torch::save ends the program when the disk is full. These functions check everything first:
//
//   auto values = use_gpu::read_parameters(net);           // copies, in host memory
//   use_gpu::write_parameters(net, {{"0.weight", w}});     // in place, where the network lives
//   use_gpu::save_parameters(net, "net.safetensors");    // atomic: the old file or the new one
//   use_gpu::load_parameters(net, "net.safetensors");    // exactly these names, or nothing changes
//   use_gpu::load_parameters(net, "model.safetensors",   // what Python trained, under its names
//                            {.rename = my_name_of, .allow_unexpected = true});
//
// "Parameters" are the registered parameters and buffers, by their names ("0.weight"); undefined
// ones are left out. Many small tensors travel together, in few large transfers through pinned host
// memory, of which at most 64 MB are needed for each device and direction. The files are
// safetensors, as in tensor_file.hpp, with a checksum (XXH3) for each tensor in their metadata.
// Python's counterpart is `state_dict` with `load_state_dict`, which C++ does not have.
//
// Threads: several may read one network at once. While one writes to a network, no other may use that
// network.
#pragma once

#include <ATen/core/Tensor.h>
#include <use_gpu/export.hpp>
#include <use_gpu/module_ref.hpp>

#include <concepts>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace torch {
template <typename Key, typename Value>
class OrderedDict;
}

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
  std::map<std::string, at::Tensor> by_name;
  for (const auto& x : values) by_name.emplace(x.key(), x.value());
  write_parameters(net, by_name);
}

/// Writes all parameters and buffers to a safetensors file. Atomic: at every moment, and after
/// every failure, the file is the old one or the new one. An existing file keeps its mode; a
/// symbolic link is followed.
///
/// Waits: for the devices, and until the file is on the disk.
///
/// Throws: ParameterError, with the path and the cause, if the file cannot be written: a full disk,
/// a folder that may not be written, a target that is not a regular file, a name that ends in
/// ".json", a dtype that the format lacks.
void save_parameters(ConstModuleRef net, const std::filesystem::path& file);

/// What load_parameters may do where file and network differ.
struct LoadOptions {
  /// The file's name to the network's; empty: leave that tensor out. Two that become one are a
  /// ParameterError; what it throws passes unchanged. Called once for each tensor of the file.
  std::function<std::string(const std::string&)> rename = {};
  /// Parameters and buffers that the file lacks keep their values.
  bool allow_missing = false;
  /// Tensors that the network lacks are ignored.
  bool allow_unexpected = false;
  /// Values of another dtype are rounded to the network's, as Tensor::to does; but an integer dtype
  /// must hold all integers unchanged. As LibTorch promotes: no complex numbers to real ones, nor
  /// floating point to integers.
  bool convert_dtype = false;
};

/// What load_parameters did; each list is sorted.
struct LoadReport {
  std::vector<std::string> loaded;      ///< the network's names, converted ones too
  std::vector<std::string> missing;     ///< the network's; not if tied to a loaded one
  std::vector<std::string> unexpected;  ///< the file's; not if left out by rename
  std::vector<std::string> converted;   ///< the network's, of those that had another dtype
};

/// Reads a safetensors file, or all files of an index (".json"), into the network. Without options
/// the network must have exactly the file's names, shapes and dtypes; of tied names one is enough.
/// In place, as write_parameters: nothing moves. Checksums as in load_tensors. The files are
/// mapped, not copied, so no other program may truncate them meanwhile (save_parameters never
/// does).
///
/// Waits: for the devices.
///
/// Throws: ParameterError, and nothing has changed, if a file cannot be read, is damaged, or does
/// not fit; differences() has each missing or extra name, wrong shape and dtype. For a write that
/// the device refuses LibTorch's error passes: the values on that device are then unspecified.
LoadReport load_parameters(ModuleRef net, const std::filesystem::path& file,
                           const LoadOptions& options = {});

}  // namespace use_gpu
