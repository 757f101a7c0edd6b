// SPDX-License-Identifier: MIT
#include <use_gpu/diagnosis.hpp>

#include <exception>

#include "diagnosis/explanation.hpp"
#include "diagnosis/gpu_probe.hpp"
#include "messages/error_text.hpp"

namespace USE_GPU_EXPORT use_gpu {

std::string explain_gpus() {
  try {
    return detail::explain(detail::probe_gpus());
  } catch (const std::exception& e) {
    return "The GPUs cannot be examined: " + detail::error_cause(e) +
           ". The program runs on the CPU; see whether `nvidia-smi` works.";
  }
}

}  // namespace use_gpu
