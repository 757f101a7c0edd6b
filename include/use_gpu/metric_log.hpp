// SPDX-License-Identifier: MIT
//
// A log that stays on the device. Reading a loss in each step, to print it or to collect it in a
// vector, makes the host wait for the GPU in each step. The chapter: "allocate memory for logging
// inside the GPU and only move larger logs":
//
//   use_gpu::MetricLog losses(device);
//   for (...) { ...; losses.push(loss); }                // does not wait
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

/// Collects numbers on a device and copies them to the host in blocks. Uses memory there for two
/// blocks of float64 (float32 on MPS, which has no float64), and as much pinned host memory, for
/// any number of values; and 512 bytes for each value that it keeps, at most a block of them. On the
/// CPU it writes directly to host memory. For one thread at a time; the current stream may change
/// between calls: the log orders its own work.
class MetricLog {
 public:
  /// DeviceError if the device is not there, ArgumentError for a block_size outside 1 to 2^27.
  explicit MetricLog(c10::Device device, std::int64_t block_size = 4096);
  /// Does not wait for pending copies. In static storage it leaves its memory to the program's end.
  ~MetricLog();
  /// Afterwards `other` can only be assigned to or destroyed.
  MetricLog(MetricLog&& other) noexcept;
  /// As above; this log's values are lost.
  MetricLog& operator=(MetricLog&& other) noexcept;

  /// Appends one number: a tensor with one element, of any real dtype; detached. Copies it on the
  /// device without waiting for it. Each block_size-th push starts one asynchronous copy of the
  /// full block to the host; only that push waits, and only if the two copies before it are still
  /// under way. DeviceMismatch for a tensor that is elsewhere; ArgumentError if it is undefined,
  /// not real or has not exactly one element, and during capture of a CUDA graph: each replay would
  /// write to the same place.
  void push(const at::Tensor& value);
  /// The same without a kernel, for a value that nobody else holds, as in log.push(x.norm()): its
  /// memory is kept, and the values of a block are copied together, by one kernel for each 128 of a
  /// dtype and one more. Nothing else is kept, no graph. A value with another owner (an output that
  /// autograd saved, a view), with memory that LibTorch did not allocate or of more than 512 bytes
  /// is copied as above. A CUDA graph's own output, which its next replay overwrites, must be pushed
  /// as an lvalue. Where it throws, `value` is as it was.
  void push(at::Tensor&& value);

  /// How many were pushed.
  [[nodiscard]] std::int64_t size() const;

  /// All pushed values, in order; the log stays usable. float32, float64 and integers to 2^53 are
  /// exact, NaN and infinities are kept. Copies what is not yet on the host, and waits for it.
  /// ArgumentError while a CUDA graph is captured.
  [[nodiscard]] std::vector<double> values();

 private:
  c10::Device device_;
  std::vector<double> values_;                    // values on the host
  std::unique_ptr<detail::MetricBlocks> blocks_;  // other values; none on the CPU
};

}  // namespace use_gpu
