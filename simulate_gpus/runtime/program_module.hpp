// SPDX-License-Identifier: MIT
//
// What a program brings to be run on GPUs: kernels and variables. The PTX is found and read when a device first needs it. Each
// device has variables of its own.
#pragma once

#include <driver_types.h>

#include <array>
#include <cstddef>
#include <functional>
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

class ProgramModule {
 public:
  /// `find` gives the PTX, or throws a KernelError. The variables of one whose memory is managed are the host's too.
  explicit ProgramModule(std::function<std::string()> find, bool is_managed = false)
      : find_(std::move(find)), is_managed_(is_managed) {}

  /// Throws: KernelError.
  std::shared_ptr<ptx::Module> on(int device);

 private:
  std::mutex mutex_;
  std::function<std::string()> find_;
  bool is_managed_;
  std::optional<std::string> text_;
  std::array<std::shared_ptr<ptx::Module>, k_most_gpus> loaded_;
};

inline namespace interface {  // what the library exports

/// Of an image as the driver takes it: PTX, a fat binary or its wrapper, or machine code. What is not PTX for this
/// card is refused by the first launch, in a dry run never. Throws: KernelError.
[[nodiscard]] std::shared_ptr<ProgramModule> read_module(const void* image);

/// PTX texts as one, which is valid. Throws: KernelError.
[[nodiscard]] std::string linked_text(const std::vector<std::string>& texts);

/// Address and bytes of a variable on the current device. Throws: KernelError.
[[nodiscard]] ptx::Variable variable_of(ProgramModule& module, const std::string& name);

/// Throws: KernelError.
[[nodiscard]] std::vector<std::string> kernels_of(ProgramModule& module);
[[nodiscard]] bool has_kernel(ProgramModule& module, const std::string& name);

}  // namespace interface
}  // namespace simulate_gpus
