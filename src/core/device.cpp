// SPDX-License-Identifier: MIT
#include <use_gpu/device.hpp>

#include <ATen/DeviceAccelerator.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <utility>

#include "core/device_check.hpp"
#include "core/messages/log_message.hpp"
#include "gpu_info/message.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

c10::DeviceType gpu_type() {
  if (detail::is_exiting()) return c10::kCUDA;  // LibTorch cannot be asked any more
  return at::accelerator::getAccelerator(/*checked=*/false).value_or(c10::kCUDA);
}

}  // namespace

c10::Device cpu() { return c10::Device(c10::kCPU); }

c10::Device gpu(int index) {
  if (index < 0 || !std::in_range<c10::DeviceIndex>(index)) {
    throw DeviceError("gpu(" + std::to_string(index) +
                      "): a GPU's index is 0 to 127; use_gpu::num_gpus() counts the GPUs.");
  }
  return {gpu_type(), static_cast<c10::DeviceIndex>(index)};
}

int num_gpus() noexcept try { return detail::count_devices(gpu_type()); } catch (...) {
  return 0;
}

c10::Device try_gpu(int index) {
  if (index < 0)
    throw DeviceError("try_gpu(" + std::to_string(index) + "): a GPU's index is at least 0.");
  if (index < num_gpus()) return gpu(index);
  detail::log_message(LogLevel::debug,
                      "try_gpu(" + std::to_string(index) + "): not there, using the CPU");
  return cpu();
}

std::vector<c10::Device> try_all_gpus() {
  std::vector<c10::Device> devices;
  for (int i = 0, count = num_gpus(); i < count; ++i) devices.push_back(gpu(i));
  if (devices.empty()) devices.push_back(cpu());
  return devices;
}

bool same_device(c10::Device a, c10::Device b) {
  return a == b || detail::with_index(a) == detail::with_index(b);
}

c10::Device parse_device(std::string_view name) {
  if (name == "auto") return try_gpu();
  const auto colon = std::min(name.find(':'), name.size());
  const std::string type(name.substr(0, colon)), index(name.substr(colon));
  try {
    const c10::Device device((type == "gpu" ? "cuda" : type) + index);
    // LibTorch's parser is as strict as this function, but an index past 127 wraps around.
    if (index == (device.has_index() ? ":" + std::to_string(device.index()) : "")) {
      if (type == "gpu") return gpu(std::max<int>(device.index(), 0));
      if (device.is_cpu() && device.index() <= 0) return cpu();
      if (at::accelerator::isAccelerator(device.type())) return device;
    }
  } catch (const c10::Error&) {  // not one of LibTorch's names
  }
  throw DeviceError("parse_device: " + detail::in_quotes(name) +
                    " names no device. Accepted are \"cpu\", \"gpu\", \"gpu:1\", \"auto\" (a GPU "
                    "if there is one) and LibTorch's own names such as \"cuda\" or \"cuda:1\": "
                    "lower case, no spaces, indices 0 to 127.");
}

void synchronize(c10::Device device) {
  device = detail::present_device(device);
  if (detail::is_always_there(device)) return;
  // LibTorch switches back to the previous device, and would create a CUDA context there.
  const c10::DeviceGuard current(device);
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

}  // namespace use_gpu
