// SPDX-License-Identifier: MIT
#include <use_gpu/errors.hpp>

#include "gpu_info/message.hpp"

namespace USE_GPU_EXPORT use_gpu {

// c10::Error's constructor from a message alone is the one that adds no backtrace.
Error::Error(const std::string& message) : c10::Error(detail::fitted(message)) {}

}  // namespace use_gpu
