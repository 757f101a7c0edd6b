// SPDX-License-Identifier: MIT
#include <use_gpu/memory.hpp>

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <use_gpu/device.hpp>

#include <algorithm>
#include <ostream>
#include <typeinfo>

#include "core/device_check.hpp"
#include "core/device_cuda.hpp"
#include "core/messages/log_message.hpp"
#include "gpu_info/message.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

c10::DeviceAllocator* allocator_of(c10::Device device) {
  return dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
}

// What the driver says. CUDA would make a context, of several hundred MB, on a GPU that this process
// does not use yet; there NVML is asked, for all cards once.
MemoryReport ask_driver(c10::Device device, std::optional<GpuReport>& asked) try {
  const auto& cuda = at::globalContext().getAcceleratorHooksInterface(c10::kCUDA);
  if (const auto card = detail::card_of(device); card && !cuda.hasPrimaryContext(device.index())) {
    if (!asked) asked = query_gpus();
    if (const auto* const found = detail::find_card(*card, *asked))
      return {device, found->memory_free_bytes, card->total_bytes};
  }
  auto* const allocator = allocator_of(device);
  if (allocator == nullptr) return {device};
  // LibTorch switches back to the previous device, and would make a context there.
  const c10::DeviceGuard current(device);
  const auto [free, total] = allocator->getMemoryInfo(device.index());
  return {device, free, total};
} catch (const c10::NotImplementedError&) {  // not reported by this device type
  return {device};
}

// LibTorch has a type for this error of its allocator of GPU memory, and codes for those of the CUDA
// runtime. cuBLAS, cuDNN and the CPU's allocator tell it by their text alone, in errors of
// no other type (cuDNN's own is not known in a build without CUDA).
bool is_out_of_memory(const c10::Error& error) {
  constexpr int k_memory_allocation = 2;  // CUDA's code, and HIP's
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) return true;
  if (const auto* const runtimes = dynamic_cast<const c10::AcceleratorError*>(&error))
    return runtimes->get_error_code() == k_memory_allocation;
  const std::string text = error.what_without_backtrace();
  if (typeid(error) != typeid(c10::Error) && !text.starts_with("cuDNN error")) return false;
  const auto texts = {"out of memory", "not enough memory", "can't allocate memory", "ALLOC_FAILED",
                      "ALLOCATION_FAILED"};
  return std::ranges::any_of(texts, [&](const char* part) { return text.find(part) != text.npos; });
}

std::string text_of(const std::optional<std::uint64_t>& bytes) {
  return bytes ? c10::CachingAllocator::format_size(*bytes) : "-";
}

}  // namespace

MemoryReport memory_report(c10::Device device) {
  device = detail::present_device(device);
  std::optional<GpuReport> asked;
  auto report = ask_driver(device, asked);
  auto* const allocator = allocator_of(device);
  if (allocator == nullptr || !allocator->initialized()) return report;
  const auto stats = allocator->getDeviceStats(device.index());
  const auto bytes = [](std::int64_t count) { return static_cast<std::uint64_t>(count); };
  report.allocated_bytes = bytes(stats.allocated_bytes[0].current);  // of small and large blocks
  report.cached_bytes = bytes(stats.reserved_bytes[0].current);
  report.peak_allocated_bytes = bytes(stats.allocated_bytes[0].peak);
  return report;
}

std::ostream& operator<<(std::ostream& out, const MemoryReport& report) {
  return out << std::vector<MemoryReport>{report};
}

std::ostream& operator<<(std::ostream& out, const std::vector<MemoryReport>& reports) {
  detail::TextTable table{{"device", "free", "total", "allocated", "cached", "peak allocated"}};
  for (const auto& x : reports) {
    table.push_back({x.device.str(), text_of(x.free_bytes), text_of(x.total_bytes),
                     text_of(x.allocated_bytes), text_of(x.cached_bytes),
                     text_of(x.peak_allocated_bytes)});
  }
  return detail::print_table(out, table)
         << R"(Free: what the driver can still give, to any process. It keeps a part of the total, as
does the CUDA context of each process, some hundred MB. Allocated: in tensors of this
process. Cached: what LibTorch has taken for them, with freed memory and the pools of
CUDA graphs.
)";
}

c10::Device try_emptiest_gpu(std::uint64_t least_bytes) {
  std::optional<GpuReport> asked;
  c10::Device emptiest = cpu();
  std::uint64_t most = 0;
  for (const auto device : try_all_gpus()) {
    try {
      const auto free = ask_driver(device, asked).free_bytes.value_or(0);
      if (free < least_bytes || (!emptiest.is_cpu() && free <= most)) continue;
      emptiest = device;
      most = free;
    } catch (const c10::Error&) {  // a GPU that cannot even be asked cannot be used
    }
  }
  detail::log_message(LogLevel::debug, c10::str("try_emptiest_gpu(", least_bytes, "): ", emptiest,
                                                ", ", most, " bytes free"));
  return emptiest;
}

std::int64_t fit_batch_size(std::int64_t largest, const std::function<void(std::int64_t)>& work,
                            std::int64_t least) {
  if (least < 1 || largest < least) {
    throw ArgumentError(c10::str("fit_batch_size: the sizes are ", least, " to ", largest,
                                 "; the least must be at least 1, the largest not below it."));
  }
  if (!work) throw ArgumentError("fit_batch_size: there is no work to call; give it a function.");
  for (auto size = largest;;) {
    try {
      work(size);
      return size;
    } catch (const c10::Error& failure) {
      if (size == least || !is_out_of_memory(failure)) throw;
    }
    // Outside the handler nothing of that work is left, not even its error.
    auto* const allocator = num_gpus() > 0 ? allocator_of(gpu()) : nullptr;
    if (allocator != nullptr && allocator->initialized()) allocator->emptyCache();
    const auto smaller = std::max(least, size / 2);
    detail::log_message(
        LogLevel::warning,
        c10::str("fit_batch_size: ", size, " does not fit into memory; trying ", smaller, "."));
    size = smaller;
  }
}

}  // namespace use_gpu
