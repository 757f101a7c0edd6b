// SPDX-License-Identifier: MIT
//
// How much memory a device has and who uses it, which GPU has the most left, and what to do with a
// batch that does not fit.
//
//   std::cout << use_gpu::memory_report(device);                    // a table
//   c10::Device device = use_gpu::try_emptiest_gpu(std::uint64_t{4} << 30);   // with 4 GiB free
//   auto size = use_gpu::fit_batch_size(4096, [&](std::int64_t n) { step(data.narrow(0, 0, n)); });
//
// What LibTorch has freed stays in its cache, for later tensors of this process.
// at::accelerator::emptyCache() returns it to the driver, at::accelerator::resetPeakStats(index)
// begins a new peak. Mirrors torch.cuda.mem_get_info and torch.cuda.memory_stats.
//
// Threads: several may call these at once.
#pragma once

#include <c10/core/Device.h>
#include <use_gpu/errors.hpp>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>

namespace USE_GPU_EXPORT use_gpu {

/// The memory of one device, in bytes.
struct MemoryReport {
  c10::Device device{c10::kCPU};  ///< the one that was asked for
  /// What the driver can still give, to any process. Empty if the device does not report it: the
  /// CPU.
  std::optional<std::uint64_t> free_bytes{};
  /// What the GPU has for all processes; the driver keeps a part of it.
  std::optional<std::uint64_t> total_bytes{};
  /// In tensors of this process, as LibTorch's allocator rounds them up. Zero on the CPU, as the
  /// next two.
  std::uint64_t allocated_bytes = 0;
  /// What LibTorch has taken from the driver: for these tensors, for later ones, and in the pools
  /// of CUDA graphs.
  std::uint64_t cached_bytes = 0;
  /// The most that was allocated since the start, or since at::accelerator::resetPeakStats.
  std::uint64_t peak_allocated_bytes = 0;
};

/// Counts the device's memory. Does not synchronize. Creates no CUDA context where NVML can tell
/// what is free.
///
/// Throws: DeviceError if the device is not there.
[[nodiscard]] MemoryReport memory_report(c10::Device device);

/// A table of one line, and what its columns include. Ends with a newline.
std::ostream& operator<<(std::ostream& out, const MemoryReport& report);
/// The same with a line for each.
std::ostream& operator<<(std::ostream& out, const std::vector<MemoryReport>& reports);

/// The GPU for which the driver has the most free memory, if that is at least `least_bytes`; else
/// the CPU. If several have the same, the first of them. Asks only GPUs that this program can use.
/// Creates no CUDA context where NVML can tell what is free; the first tensor creates one, of some
/// hundred MB. Another process may take the memory in the meantime.
[[nodiscard]] c10::Device try_emptiest_gpu(std::uint64_t least_bytes = 0);

/// Calls work(largest). If that ends in an out-of-memory error, calls it again with half the size,
/// and so on, but with no less than `least`. Returns the size that worked. Out-of-memory errors are
/// c10::OutOfMemoryError, and those of cuBLAS, cuDNN, the CUDA runtime and the CPU's allocator.
/// Before each new call it returns LibTorch's cached memory to the driver, and logs a warning. When
/// `work` has failed, its own tensors are gone; what it changed elsewhere, such as gradients, is
/// not undone.
///
/// Waits: after a failure, for the devices.
///
/// Throws: the last error if not even `least` works, and any other error of `work` at once;
/// ArgumentError unless 1 <= least <= largest and there is work.
///
/// Chapter: "make sure that we do not create data that exceeds the GPU memory limit".
std::int64_t fit_batch_size(std::int64_t largest, const std::function<void(std::int64_t)>& work,
                            std::int64_t least = 1);

}  // namespace use_gpu
