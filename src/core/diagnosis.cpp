// SPDX-License-Identifier: MIT
#include <ATen/ATen.h>
#include <use_gpu/device.hpp>
#include <use_gpu/diagnosis.hpp>

#include <cstdlib>

#include "core/device_check.hpp"
#include "core/explanation.hpp"
#include "core/messages/error_text.hpp"
#include "gpu_info/message.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

// What is reported when the device computes; empty if all is well.
std::string error_of(c10::Device device) try {
  detail::read_allocator_settings();
  // Ones, because zeros need no kernel and work on GPUs that LibTorch has no code for.
  static_cast<void>(at::ones({1}, device));
  synchronize(device);
  return {};
} catch (const std::exception& e) {
  return detail::error_cause(e);
}

// Runs one small operation on every GPU and waits.
detail::GpuFacts probe_gpus() {
  detail::GpuFacts facts;
  const detail::QuietWarnings quiet;
  const int count = num_gpus();
  const auto type = at::accelerator::getAccelerator(/*checked=*/false);
  if (type) facts.kind = c10::DeviceTypeName(*type, /*lower_case=*/true);
  // libtorch_cpu knows its build options even if libtorch_cuda is not loaded.
  facts.cuda_not_loaded = !type && at::show_config().find("CUDA_VERSION=") != std::string::npos;
  if (type == c10::kCUDA) facts.cuda = detail::cuda_facts();
  // Where both are set, LibTorch takes the older one.
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    if (const char* value = std::getenv(name))
      facts.allocator_settings = std::string(name) + '=' + detail::in_quotes(value);
  }
  for (int i = 0; i < count; ++i) {
    const auto card = detail::card_of(gpu(i));
    facts.gpus.push_back({gpu(i).str(), card ? card->model : "", error_of(gpu(i))});
  }
  if (type && count == 0 && !facts.cuda) facts.error = error_of(gpu());
  facts.report = query_gpus();
  if (const char* value = std::getenv("CUDA_VISIBLE_DEVICES")) facts.visible_devices = value;
  return facts;
}

}  // namespace

std::string explain_gpus() try {
  if (detail::is_exiting())
    return "The program is ending, and LibTorch has gone: no GPU can be used or examined any more.";
  return detail::explain(probe_gpus());
} catch (const std::exception& e) {
  return "The GPUs cannot be examined: " + detail::error_cause(e) +
         ". The program runs on the CPU; see whether `nvidia-smi` works.";
}

}  // namespace use_gpu
