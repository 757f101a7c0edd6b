// SPDX-License-Identifier: MIT
#include <ATen/DeviceAccelerator.h>
#include <ATen/Version.h>
#include <ATen/ops/ones.h>
#include <use_gpu/device.hpp>
#include <use_gpu/diagnosis.hpp>
#include <use_gpu/memory.hpp>

#include <cstdlib>
#include <exception>

#include "diagnosis/gpu_probe_cuda.hpp"
#include "messages/error_text.hpp"
#include "messages/message.hpp"
#include "messages/quiet_warnings.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

template <class Work>
detail::RuntimeError error_of(const Work& work) {
  try {
    work();
    return {};
  } catch (const c10::AcceleratorError& e) {
    return {detail::error_cause(e), detail::cuda_error_name(e.get_error_code())};
  } catch (const c10::OutOfMemoryError& e) {
    return {detail::error_cause(e), "cudaErrorMemoryAllocation"};
  } catch (const std::exception& e) {
    return {detail::error_cause(e)};
  }
}

// Ones, because zeros need no kernel and work on GPUs that LibTorch has no code for.
void compute_on(c10::Device device) {
  static_cast<void>(at::ones({1}, device));
  synchronize(device);
}

detail::ProbedGpu probe(c10::Device device) {
  detail::ProbedGpu gpu{.name = device.str(), .model = detail::cuda_model(device)};
  gpu.error = error_of([&] {
    detail::read_allocator_settings();
    compute_on(device);
    gpu.memory_bytes = memory_report(device).total_bytes;
  });
  return gpu;
}

// Runs one small operation on every GPU and waits.
detail::GpuFacts probe_gpus() {
  detail::GpuFacts facts;
  const detail::QuietWarnings quiet;
  const int count = num_gpus();
  const auto type = at::accelerator::getAccelerator(/*checked=*/false);
  if (type) {
    facts.kind = c10::DeviceTypeName(*type, /*lower_case=*/true);
  } else {
    // libtorch_cpu knows its build options even if libtorch_cuda is not loaded.
    facts.cuda_not_loaded = at::show_config().find("CUDA_VERSION=") != std::string::npos;
  }
  if (type == c10::kCUDA) facts.cuda = detail::probe_cuda();
  // Where both are set, LibTorch takes the older one.
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    if (const char* value = std::getenv(name))
      facts.allocator_settings = std::string(name) + '=' + detail::in_quotes(value);
  }
  for (int i = 0; i < count; ++i) facts.gpus.push_back(probe(gpu(i)));
  if (type && count == 0 && !facts.cuda) facts.error = error_of([] { compute_on(gpu()); });
  facts.report = query_gpus();
  if (const char* value = std::getenv("CUDA_VISIBLE_DEVICES")) facts.visible_devices = value;
  return facts;
}

}  // namespace

std::string explain_gpus() {
  try {
    return detail::explain(probe_gpus());
  } catch (const std::exception& e) {
    return "The GPUs cannot be examined: " + detail::error_cause(e) +
           ". The program runs on the CPU; see whether `nvidia-smi` works.";
  }
}

}  // namespace use_gpu
