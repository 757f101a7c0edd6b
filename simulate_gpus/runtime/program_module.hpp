// SPDX-License-Identifier: MIT
//
// What a program brings to be run on GPUs: kernels and variables. The PTX is found and read when a device first needs it. Each
// device has variables of its own.
#pragma once

#include <driver_types.h>

#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fat_binary.hpp"
#include "kernel_error.hpp"
#include "ptx/ptx.hpp"
#include "settings.hpp"

namespace simulate_gpus {

/// The newest PTX that the card can run. Throws: KernelError; where there is only machine code it says how nvcc embeds PTX.
std::string choose_ptx(const std::vector<CodeImage>& images);

/// All variables of all modules on the device go, as its context does.
void forget_modules(int device);

class ProgramModule {
 public:
  /// `find` gives the PTX, or throws a KernelError. The variables of one whose memory is managed are the host's too.
  explicit ProgramModule(std::function<std::string()> find, bool is_managed = false);

  /// Throws: KernelError.
  std::shared_ptr<ptx::Module> on(int device);

  ~ProgramModule();
  ProgramModule(const ProgramModule&) = delete;
  ProgramModule& operator=(const ProgramModule&) = delete;

  /// The variables of the device are gone: whoever needs them next gets them anew.
  void forget(int device);

 private:
  std::mutex mutex_;
  std::function<std::string()> find_;
  bool is_managed_;
  std::optional<std::string> text_;
  std::array<std::shared_ptr<ptx::Module>, k_most_gpus> loaded_;
};

inline namespace interface {  // what the library exports

/// Of an image as the driver takes it: PTX, a fat binary or its wrapper, or machine code; `most` bytes of a file, which has
/// no wrapper. What is not PTX for this card is refused by the first launch, in a dry run never. Throws: KernelError.
[[nodiscard]] std::shared_ptr<ProgramModule> read_module(
    const void* image, std::size_t most = std::numeric_limits<std::size_t>::max());

/// PTX texts as one, which is valid. Throws: KernelError.
[[nodiscard]] std::string linked_text(const std::vector<std::string>& texts);

/// Address and bytes of a variable on the device. Throws: KernelError.
[[nodiscard]] ptx::Variable variable_of(ProgramModule& module, const std::string& name, int device);

/// Throws: KernelError.
[[nodiscard]] std::vector<std::string> kernels_of(ProgramModule& module);
[[nodiscard]] bool has_kernel(ProgramModule& module, const std::string& name);

}  // namespace interface
}  // namespace simulate_gpus
