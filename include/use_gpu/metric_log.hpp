// SPDX-License-Identifier: MIT
//
// A log that stays on the device. Reading a loss in each step, to print it or to collect it in a
// vector, makes the host wait for the GPU in each step. The chapter: "allocate memory for logging
// inside the GPU and only move larger logs":
//
//   use_gpu::MetricLog losses(device);
//   for (...) { ...; losses.push(loss); }                // no transfer, no waiting
//   for (double loss : losses.values()) ...              // waits, once
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <use_gpu/export.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace use_gpu::detail {
class MetricBlocks;
}

namespace USE_GPU_EXPORT use_gpu {

/// Numbers kept on a device until they are asked for. Takes memory there for two blocks of float64
/// (float32 on MPS, which has no other), and as much pinned memory on the host, however many are
/// pushed. On the CPU it writes straight to host memory. Used by one thread at a time; the stream
/// that is current may change from one call to the next; the log orders its own work.
class MetricLog {
 public:
  /// DeviceError where the device is not there, ArgumentError for a block_size of less than one number
  /// or more than 2^27.
  explicit MetricLog(c10::Device device, std::int64_t block_size = 4096);
  /// Does not wait for copies under way.
  ~MetricLog();
  /// Afterwards `other` can only be assigned to or destroyed.
  MetricLog(MetricLog&& other) noexcept;
  /// As above; what this log has kept is dropped.
  MetricLog& operator=(MetricLog&& other) noexcept;

  /// Appends one number: of any real dtype, of no dimensions or with one element, detached. Copies
  /// it on the device without waiting for it. Each block_size-th push starts one asynchronous copy of
  /// the full block to the host; only that push waits, and only if the two copies before it are
  /// still under way. DeviceMismatch for a tensor that is elsewhere; ArgumentError for one that is
  /// undefined, not real, has not one element, and while a CUDA graph is captured, as each replay
  /// would write to the same place.
  void push(const at::Tensor& value);

  /// How many were pushed.
  [[nodiscard]] std::int64_t size() const;

  /// All that was pushed, in order; the log goes on. float32, float64 and integers to 2^53 are
  /// exact, NaN and infinities are kept. Copies what the last blocks left and waits for the device.
  /// ArgumentError while a CUDA graph is captured.
  [[nodiscard]] std::vector<double> values();

 private:
  c10::Device device_;
  std::vector<double> values_;                    // what is on the host
  std::unique_ptr<detail::MetricBlocks> blocks_;  // what is not yet; none on the CPU
};

}  // namespace use_gpu
