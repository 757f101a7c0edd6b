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
#include <use_gpu/errors.hpp>

#include <cstdint>
#include <memory>

namespace use_gpu::detail {
class MetricBlocks;
}

namespace USE_GPU_EXPORT use_gpu {

/// Collects numbers on a device and copies them to the host in blocks, for any number of values. A
/// block is of float64 (float32 on MPS, which has no float64). At most two blocks are on their way,
/// to pinned host memory of the log. On the CPU it writes directly to host memory. The current stream
/// may change between calls: the log orders its own work.
///
/// Threads: one at a time.
class MetricLog {
 public:
  /// An empty log. It takes memory for a block on the device, and for two, pinned, on the host.
  ///
  /// Throws: DeviceError if the device is not there, ArgumentError for a block_size outside 1 to
  /// 2^27.
  explicit MetricLog(c10::Device device, std::int64_t block_size = 4096);
  /// Does not wait for pending copies. In static storage it leaves its memory to the program's end.
  ~MetricLog();
  /// Afterwards `other` can only be assigned to or destroyed.
  MetricLog(MetricLog&& other) noexcept;
  /// As above; this log's values are lost.
  MetricLog& operator=(MetricLog&& other) noexcept;

  /// Appends one number: a tensor with one element, of any real dtype; detached. One kernel, or copy
  /// on the device, writes it to the block. The first push after a full block starts one asynchronous
  /// copy of that to the host.
  ///
  /// Waits: only where it starts such a copy, and only if the two copies before it are not done.
  ///
  /// Throws: DeviceMismatch for a tensor that is elsewhere; ArgumentError if it is undefined, not
  /// real or does not have exactly one element, and while a CUDA graph is captured: each replay
  /// would write to the same place.
  void push(const at::Tensor& value);
  /// The same without a kernel, for a value that nobody else holds, as in log.push(x.norm()). The
  /// log keeps the memory of the value, 512 bytes, LibTorch's least, and no autograd graph. When the
  /// block is full, or asked for, one kernel for each 128 values of a dtype and one more write these to
  /// it. A value with another owner (an output that autograd saved, a view), with memory that LibTorch
  /// did not allocate, or of more than 512 bytes is copied as above. A CUDA graph's own output, which
  /// its next replay overwrites, must be pushed as an lvalue.
  ///
  /// Throws: as above; `value` is then as it was.
  void push(at::Tensor&& value);

  /// How many were pushed.
  [[nodiscard]] std::int64_t size() const;

  /// All pushed values, in order; the log stays usable. float32, float64 and integers to 2^53 are
  /// exact; NaN and infinities are kept.
  ///
  /// Waits: for what is not yet on the host, which it copies.
  ///
  /// Throws: ArgumentError while a CUDA graph is captured.
  [[nodiscard]] std::vector<double> values();

 private:
  c10::Device device_;
  std::vector<double> values_;                    // values on the host
  std::unique_ptr<detail::MetricBlocks> blocks_;  // other values; none on the CPU
};

}  // namespace use_gpu
