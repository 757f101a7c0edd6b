// SPDX-License-Identifier: MIT
//
// The library that reads and executes PTX. It is opened when a program brings its first kernel, so that other programs start as if
// there were none.
#pragma once

#include <memory>
#include <string>

#include "fat_binary.hpp"
#include "kernel_error.hpp"
#include "ptx/ptx.hpp"

namespace simulate_gpus {

/// Throws: KernelError.
std::shared_ptr<ptx::Module> load_ptx(const std::string& text, const ptx::Host& host);

/// The image as text. Throws: KernelError, also for one that is compressed by what this build lacks.
std::string text_of(const CodeImage& image);

/// What the engine has thrown.
KernelError error_of(const ptx::Error& error);

}  // namespace simulate_gpus
