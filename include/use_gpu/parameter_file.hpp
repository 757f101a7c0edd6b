// SPDX-License-Identifier: MIT
//
// A network's parameters in files, without loss. torch::load accepts a tensor of another shape,
// ignores unknown names, and moves the network; torch::save ends the program when the disk is full.
// These functions check everything first:
//
//   use_gpu::save_parameters(net, "net.safetensors");    // atomic: the old file or the new one
//   use_gpu::load_parameters(net, "net.safetensors");    // exactly these names, or nothing changes
//   use_gpu::load_parameters(net, "model.safetensors",   // what Python trained, under its names
//                            {.rename = my_name_of, .allow_unexpected = true});
//
// "Parameters" are those of parameters.hpp, buffers too. The files are safetensors, as in
// tensor_file.hpp, with a checksum (XXH3) for each tensor in their metadata.
//
// Threads: several may save one network at once. While one loads a network, no other may use it.
#pragma once

#include <use_gpu/errors.hpp>
#include <use_gpu/module_ref.hpp>

#include <functional>

namespace USE_GPU_EXPORT use_gpu {

/// Writes all parameters and buffers to a safetensors file. Atomic: at every moment, and after
/// every failure, the file is the old one or the new one. An existing file keeps its mode; a
/// symbolic link is followed.
///
/// Waits: for the devices, and until the file is on the disk.
///
/// Throws: FileError if the file cannot be written: a full disk, a folder that may not be written, a
/// target that is not a regular file, a file name that ends in ".json". ParameterError for a tensor
/// that the format cannot hold: its name, its dtype, no plain values.
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
/// Throws: before anything changes: FileError if a file cannot be read, is damaged, or has a dtype that
/// LibTorch lacks, in a tensor that is left out too; ParameterError if it does not fit, with each
/// missing or extra name, wrong shape and dtype in differences(). For a write that the device refuses
/// LibTorch's error passes: the values on that device are then unspecified.
LoadReport load_parameters(ModuleRef net, const std::filesystem::path& file,
                           const LoadOptions& options = {});

}  // namespace use_gpu
