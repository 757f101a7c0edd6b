// SPDX-License-Identifier: MIT
#include <use_gpu/errors.hpp>

#include <utility>

#include "gpu_info/message.hpp"

namespace USE_GPU_EXPORT use_gpu {

// c10::Error's constructor from a message alone is the one that adds no backtrace.
Error::Error(const std::string& message) : c10::Error(detail::fitted(message)) {}

FileError::FileError(const std::string& message, std::filesystem::path file)
    : Error(message), file_(std::move(file)) {}

ParameterError::ParameterError(const std::string& message, std::vector<std::string> differences)
    : Error(message), differences_(std::move(differences)) {}

const std::vector<std::string>& ParameterError::differences() const noexcept {
  return differences_;
}

}  // namespace use_gpu
