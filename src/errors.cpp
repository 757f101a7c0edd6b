// SPDX-License-Identifier: MIT
#include <use_gpu/errors.hpp>

#include <utility>

#include "message.hpp"

namespace use_gpu {
namespace {

// c10::Error's constructor from a message alone is the one that adds no backtrace.
std::string fit(const std::string& message) { return clipped(message, k_longest_message); }

}  // namespace

ArgumentError::ArgumentError(const std::string& message) : c10::Error(fit(message)) {}
DeviceError::DeviceError(const std::string& message) : c10::Error(fit(message)) {}
DeviceMismatch::DeviceMismatch(const std::string& message) : c10::Error(fit(message)) {}
TransferForbidden::TransferForbidden(const std::string& message) : c10::Error(fit(message)) {}

ParameterError::ParameterError(const std::string& message, std::vector<std::string> differences)
    : c10::Error(fit(message)), differences_(std::move(differences)) {}

const std::vector<std::string>& ParameterError::differences() const noexcept {
  return differences_;
}

}  // namespace use_gpu
