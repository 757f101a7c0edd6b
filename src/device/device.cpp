// SPDX-License-Identifier: MIT
#include <use_gpu/device.hpp>

#include <ATen/DeviceAccelerator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/log.hpp>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

#include "device/device_check.hpp"
#include "messages/message.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

// c10::DeviceIndex is an int8: this library converts to it only in device_at().
constexpr int k_last_index = std::numeric_limits<c10::DeviceIndex>::max();

c10::DeviceType gpu_type() {
  if (detail::is_exiting()) return c10::kCUDA;  // LibTorch cannot be asked any more
  return at::accelerator::getAccelerator(/*checked=*/false).value_or(c10::kCUDA);
}

c10::Device device_at(c10::DeviceType type, int index) {
  return {type, static_cast<c10::DeviceIndex>(index)};
}

[[noreturn]] void throw_not_a_device(std::string_view name) {
  throw DeviceError(
      "parse_device: " + detail::in_quotes(name) +
      " names no device. Accepted are \"cpu\", \"gpu\", \"gpu:1\", \"auto\" (a GPU if there "
      "is one) and LibTorch's own names such as \"cuda\" or \"cuda:1\": lower case, no "
      "spaces, indices 0 to 127.");
}

// 0..127 without sign or leading zero, or -1 for anything else.
int parse_index(std::string_view digits) {
  if (digits.empty() || (digits.size() > 1 && digits[0] == '0')) return -1;
  int index = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  return whole && digits[0] != '-' && index <= k_last_index ? index : -1;
}

// LibTorch's parser knows the names of all its device types; its index parser wraps, so it is not
// used.
std::optional<c10::DeviceType> parse_accelerator(std::string_view word) {
  const bool plain =
      std::all_of(word.begin(), word.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  if (word.empty() || word.size() > 20 || !plain) return std::nullopt;
  try {
    const auto type = c10::Device(std::string(word)).type();
    if (at::accelerator::isAccelerator(type)) return type;
  } catch (const c10::Error&) {  // not one of LibTorch's names
  }
  return std::nullopt;
}

}  // namespace

c10::Device cpu() { return c10::Device(c10::kCPU); }

c10::Device gpu(int index) {
  if (index < 0 || index > k_last_index) {
    throw DeviceError("gpu(" + std::to_string(index) + "): a GPU's index is 0 to " +
                      std::to_string(k_last_index) + "; use_gpu::num_gpus() counts the GPUs.");
  }
  return device_at(gpu_type(), index);
}

int num_gpus() noexcept {
  try {
    return detail::count_devices(gpu_type());
  } catch (...) {
    return 0;
  }
}

c10::Device try_gpu(int index) {
  if (index < 0) {
    throw DeviceError("try_gpu(" + std::to_string(index) +
                      "): a GPU's index cannot be negative; 0 is the first.");
  }
  if (index < num_gpus()) return gpu(index);
  if (log_enabled(LogLevel::debug)) {
    log_message(LogLevel::debug,
                "try_gpu(" + std::to_string(index) + "): not there, using the CPU");
  }
  return cpu();
}

std::vector<c10::Device> try_all_gpus() {
  std::vector<c10::Device> devices;
  const int count = num_gpus();
  devices.reserve(static_cast<std::size_t>(count) + 1);
  for (int i = 0; i < count; ++i) devices.push_back(gpu(i));
  if (devices.empty()) devices.push_back(cpu());
  return devices;
}

bool same_device(c10::Device a, c10::Device b) {
  return a == b || detail::with_index(a) == detail::with_index(b);
}

c10::Device parse_device(std::string_view name) {
  const auto colon = name.find(':');
  const auto word = name.substr(0, colon);
  const bool has_index = colon != std::string_view::npos;
  const int index = has_index ? parse_index(name.substr(colon + 1)) : 0;
  if (index < 0) throw_not_a_device(name);
  if (word == "cpu" && index == 0) return cpu();
  if (word == "gpu") return gpu(index);
  if (word == "auto" && !has_index) return try_gpu();
  const auto type = parse_accelerator(word);
  if (!type) throw_not_a_device(name);
  return has_index ? device_at(*type, index) : c10::Device(*type);
}

void synchronize(c10::Device device) {
  device = detail::present_device(device);
  if (detail::is_always_there(device)) return;
  // LibTorch switches back to the previous device, and would create a CUDA context there.
  const c10::DeviceGuard current(device);
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

}  // namespace use_gpu
