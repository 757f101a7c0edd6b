// SPDX-License-Identifier: MIT
//
// Named tensors in files, for a function of ours: its errors name that function and the file.
#pragma once

#include <ATen/core/Tensor.h>

#include "files/disk_file.hpp"
#include "files/safetensors.hpp"

namespace use_gpu::detail {

/// A safetensors file that is open for reading; or, if its name ends in ".json", all files of which
/// it is the index. Everything is checked when it is opened, or all but the values.
class TensorFileReader {
 public:
  /// FileError if a file cannot be read, is damaged, or lacks a tensor that the index has.
  TensorFileReader(const char* function, std::filesystem::path file,
                   Checked checked = Checked::all);

  /// Of these files, in the order in which they lie there; no name comes twice.
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const noexcept { return tensors_; }

  /// One of them as a tensor over the file's memory, which it keeps. It must not be written to, unless only the header
  /// is checked; then that changes no file. See aligned(). FileError if LibTorch lacks its dtype.
  [[nodiscard]] at::Tensor value_of(const StoredTensor& stored) const;

 private:
  // Those that the index lists.
  std::vector<StoredTensor> read_shards();
  // The tensors of a file, which stays open; logs a warning where its checksums are in doubt.
  std::vector<StoredTensor> read(const std::filesystem::path& file);

  const char* function_;
  Checked checked_;
  std::filesystem::path file_;
  std::vector<MappedFile> opened_;
  std::vector<StoredTensor> tensors_;
};

/// x, which is contiguous; a copy if its memory is not aligned. Only copies of its bytes, such as
/// bulk_copy into a target to which it is alike, may do without.
[[nodiscard]] at::Tensor aligned(const at::Tensor& x);

/// Writes a safetensors file of these tensors, which are contiguous and on the CPU, atomically and
/// with checksums. ParameterError if the format cannot hold them, FileError if writing fails.
void write_tensor_file(const char* function, const std::map<std::string, at::Tensor>& values,
                       const std::filesystem::path& file);

}  // namespace use_gpu::detail
