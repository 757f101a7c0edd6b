// SPDX-License-Identifier: MIT
//
// Named tensors in safetensors files, which Python's `safetensors` reads and writes: weights that
// were trained there, inputs, anything that has a name.
//
//   auto tensors = use_gpu::load_tensors("model.safetensors", use_gpu::try_gpu());
//   auto whole = use_gpu::load_tensors("model.safetensors.index.json");    // of several files
//   auto mapped = use_gpu::map_tensors("model.safetensors");               // read when they are used
//   use_gpu::save_tensors({{"input", x}, {"output", y}}, "example.safetensors");
//
// For a network's own tensors there are load_parameters and save_parameters (parameter_file.hpp). A
// `.pt` file is converted by two lines of Python, see docs/cookbook.md. Mirrors load_file and
// save_file of Python's safetensors.torch.
//
// Threads: several may call these at once.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>
#include <use_gpu/device.hpp>
#include <use_gpu/errors.hpp>

#include <concepts>
#include <map>

namespace USE_GPU_EXPORT use_gpu {

/// All tensors of a safetensors file by their names, contiguous, each with its own memory on the
/// device. A file whose name ends in ".json" is the index of a sharded model: its "weight_map" says
/// which tensors to take from which file in its folder.
///
/// Each value is read once: into its tensor, or for a GPU into 8 MB of pinned host memory, from where
/// it travels with others to as much memory on the GPU. A checksum that does not fit is an error in a
/// file of this library, and a warning in another file: Python programs copy the metadata to files
/// with other values. On the device "meta" the tensors have dtypes and shapes only; the files are
/// checked all the same. No other program may truncate a file meanwhile.
///
/// Waits: for the device.
///
/// Throws: FileError, with the file and the cause, if a file is not there, is damaged, has a
/// header over the format's 100 MB, or a dtype that LibTorch lacks (F6); if the index names a
/// tensor twice, a tensor that its file lacks, or a file outside of its folder. DeviceError if
/// there is no such device. For a write that it refuses LibTorch's error passes.
[[nodiscard]] std::map<std::string, at::Tensor> load_tensors(const std::filesystem::path& file,
                                                             c10::Device device = cpu());

/// The same tensors on the CPU, over the files' own memory: nothing is read before it is used, and then
/// only what is. Writing to one copies the pages that are written, and changes no file. Each keeps its
/// file mapped; one that is not aligned in its file is copied.
///
/// What that costs: neither values nor checksums are checked, and a file that another program cuts short
/// later ends this program where it reads past the end. Replace such files, as save_tensors does.
///
/// Throws: FileError as load_tensors, but for values and checksums.
[[nodiscard]] std::map<std::string, at::Tensor> map_tensors(const std::filesystem::path& file);

/// Writes the tensors, from any devices, to one safetensors file, with a checksum (XXH3) for each
/// tensor, which load_tensors checks. Atomic: at every moment, and after every failure, the file is
/// the old one or the new one. An existing file keeps its mode; a symbolic link is followed.
/// Tensors on GPUs are copied to host memory 32 MB at a time, a larger one alone.
///
/// Waits: for the devices, and until the file is on the disk.
///
/// Throws: FileError if the file cannot be written: a full disk, a file name that ends in ".json".
/// ParameterError for a tensor that the format cannot hold: its name or dtype, one that is undefined,
/// sparse, quantized or on "meta".
void save_tensors(const std::map<std::string, at::Tensor>& tensors,
                  const std::filesystem::path& file);

/// The same, of what LibTorch's named_parameters() and named_buffers() return.
template <std::same_as<at::Tensor> T>
void save_tensors(const torch::OrderedDict<std::string, T>& tensors,
                  const std::filesystem::path& file) {
  const auto pairs = tensors.pairs();
  save_tensors({pairs.begin(), pairs.end()}, file);
}

}  // namespace use_gpu
