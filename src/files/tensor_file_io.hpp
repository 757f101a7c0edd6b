// SPDX-License-Identifier: MIT
//
// Named tensors in files, for a function of ours: its errors name that function and the file.
#pragma once

#include "core/module_tensors/named_tensors.hpp"
#include "files/safetensors.hpp"

namespace use_gpu::detail {

/// What is checked of a file: all, or its header alone, without a look at the values.
enum class Checked { all, header };

/// The tensors of a safetensors file; or, if its name ends in ".json", those that this index lists. With
/// a device, where all is checked, they are new there, and their values have arrived. Otherwise each lies
/// in its file's memory, which it keeps, and which must not be written to, unless only the header was
/// checked; then that changes no file. See aligned(). FileError if a file cannot be read, is damaged,
/// has a dtype that LibTorch lacks, or lacks a tensor that the index has.
[[nodiscard]] NamedTensors read_tensor_file(const char* function, const std::filesystem::path& file,
                                            Checked checked = Checked::all,
                                            std::optional<c10::Device> device = {});

/// x, which is contiguous; a copy if its memory is not aligned. Only copies of its bytes, such as
/// bulk_copy into a target to which it is alike, may do without.
[[nodiscard]] at::Tensor aligned(const at::Tensor& x);

/// Writes a safetensors file of these tensors, from any devices, atomically and with checksums. Waits
/// for the devices. ParameterError if the format cannot hold them, FileError if writing fails.
void write_tensor_file(const char* function, const NamedTensors& values,
                       const std::filesystem::path& file);

}  // namespace use_gpu::detail
