// SPDX-License-Identifier: MIT
//
// The errors of use_gpu. LibTorch reports one cause with several texts of up to 3,800 characters,
// mostly a backtrace; these say what was asked, what was found and what to do in at most 400.
// All derive from use_gpu::Error, a subclass of c10::Error, so code that catches LibTorch's errors
// catches these too:
//
//   try { Z = use_gpu::checked_add(X, Y); }
//   catch (const use_gpu::DeviceMismatch& e) { ... }   // this one
//   catch (const use_gpu::Error& e) { ... }            // any other one of ours
//   catch (const c10::Error& e) { ... }                // LibTorch's own
//
// Threads: several may copy and read an error at once, as any exception.
#pragma once

#include <c10/util/Exception.h>
#include <use_gpu/export.hpp>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace USE_GPU_EXPORT use_gpu {

/// The base of all errors here.
class Error : public c10::Error {
 public:
  /// what() gives this message, cut to 400 characters, its longest words first, and no backtrace.
  explicit Error(const std::string& message);
};

/// An argument that can never work: an undefined tensor, a wrong number of elements, an empty
/// module holder.
class ArgumentError : public Error {
 public:
  /// what() gives this message and no backtrace.
  using Error::Error;
};

/// An invalid device name or index (`gpu(300)`), or use of a device that does not exist.
class DeviceError : public Error {
 public:
  /// what() gives this message and no backtrace.
  using Error::Error;
};

/// Operands, or the tensors of a network, on different devices.
class DeviceMismatch : public Error {
 public:
  /// what() gives this message and no backtrace.
  using Error::Error;
};

/// A file that is missing, damaged, or cannot be read or written: a full disk, no permission.
class FileError : public Error {
 public:
  /// what() gives this message and no backtrace, file() gives this path.
  FileError(const std::string& message, std::filesystem::path file)
      : Error(message), file_(std::move(file)) {}
  /// The file as it was given to the function.
  [[nodiscard]] const std::filesystem::path& file() const noexcept { return file_; }

 private:
  std::filesystem::path file_;
};

/// Named values, of a file or of another network, that do not fit the network: names, shapes, dtypes.
class ParameterError : public Error {
 public:
  /// what() gives this message and no backtrace, differences() gives these differences.
  explicit ParameterError(const std::string& message, std::vector<std::string> differences = {})
      : Error(message), differences_(std::move(differences)) {}
  /// Every difference found, one text each; `what()` only sums them up. Empty where nothing was
  /// compared.
  [[nodiscard]] const std::vector<std::string>& differences() const noexcept {
    return differences_;
  }

 private:
  std::vector<std::string> differences_;
};

/// An implicit transfer that a TransferGuard forbade, before anything was copied.
class TransferForbidden : public Error {
 public:
  /// what() gives this message and no backtrace.
  using Error::Error;
};

}  // namespace use_gpu
