// SPDX-License-Identifier: MIT
#include <use_gpu/metric_log.hpp>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/transfers.hpp>

#include <array>
#include <utility>

#include "copies/flat_buffers.hpp"
#include "device/device_check.hpp"
#include "device/device_cuda.hpp"
#include "messages/tensor_summary.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

constexpr std::int64_t k_largest_block = std::int64_t{1} << 27;  // the two take 2 GB

bool is_real_number(const at::Tensor& x) {
  return x.defined() && x.layout() == c10::kStrided && x.numel() == 1 &&
         x.scalar_type() != at::kFloat4_e2m1fn_x2 &&  // two numbers, which LibTorch cannot convert
         (at::isFloatingType(x.scalar_type()) ||
          at::isIntegralType(x.scalar_type(), /*includeBool=*/true));
}

void check(const at::Tensor& value, c10::Device device) {
  if (!is_real_number(value)) {
    throw ArgumentError("MetricLog::push: one real number was expected, found " +
                        detail::summary(value) +
                        ". Reduce it first, for example with x.mean(), or give it a value.");
  }
  if (value.device() != device) {
    throw DeviceMismatch("MetricLog::push: the log is on " + device.str() + ", value is " +
                         detail::summary(value) +
                         ". Make the log where the values are computed: "
                         "use_gpu::MetricLog log(value.device()).");
  }
}

// Whether nobody else can read or write the value's memory, which is small and its allocator's own.
bool is_unshared(const at::Tensor& x) {
  constexpr std::size_t k_most_bytes = 512;  // LibTorch allocates no less
  const auto& storage = x.storage();
  const auto* const allocator = storage.allocator();
  return x.use_count() == 1 && storage.use_count() == 1 && detail::is_dense_and_resolved(x) &&
         storage.nbytes() <= k_most_bytes && allocator != nullptr &&
         storage.data_ptr().get_deleter() == allocator->raw_deleter();
}

}  // namespace

// Two blocks on the device are filled in turn, each with pinned memory on the host to be copied to.
// The copy goes into the stream that fills the block, so the device cannot fill it again too early;
// the host reads its memory after an event. Kept values are written to the block together, later
// than others that were pushed after them: so each block knows which value is where.
class detail::MetricBlocks {
 public:
  MetricBlocks(c10::Device device, std::int64_t size)
      : size_(static_cast<std::size_t>(size)),
        guard_(device.type()),
        stream_(guard_.getStream(device)) {
    const c10::InferenceMode written_in_any_mode(false);
    const auto numbers = at::TensorOptions(device.is_mps() ? at::kFloat : at::kDouble);
    places_.reserve(size_);
    for (auto& block : blocks_) {
      block.on_device = at::empty({size}, numbers.device(device));
      block.on_host = at::empty({size}, numbers.device(at::kCPU).pinned_memory(true));
      block.copied.reset(new c10::Event(device.type()));
      block.places.reserve(size_);
    }
  }

  /// Copies the value, and moves an older block to `values` where this one is full; or keeps the
  /// value's storage until then, unless it is the last of its block. Returns whether it is kept.
  bool push(const at::Tensor& value, bool may_keep, std::vector<double>& values) {
    follow_current_stream();
    const bool is_last = places_.size() + 1 == size_;
    // It may come from another stream, which else gets its memory back before this one has read it.
    if (may_keep) guard_.recordDataPtrOnStream(value.storage().data_ptr(), stream_);
    if (may_keep && !is_last) {
      pending_.push_back(flat_view(value, value.scalar_type()));
      places_.push_back(k_pending);
      return true;
    }
    if (is_last) flush();
    auto& block = blocks_[filling_];
    const auto place = written();
    const at::AutoDispatchBelowADInplaceOrView detached;
    block.on_device.select(0, place).copy_(value.dim() == 0 ? value : value.reshape({}));
    if (is_last) {
      take(block, values);
      // Here and below: recording or waiting for an event of another device would create a CUDA
      // context on the current one.
      const c10::DeviceGuard current(stream_.device());
      const AllowTransfers certain;
      block.on_host.copy_(block.on_device, /*non_blocking=*/true);
      block.copied->record(stream_);
    }
    places_.push_back(static_cast<std::int32_t>(place));
    if (is_last) {
      block.places.swap(places_);  // an empty one
      filling_ = 1 - filling_;
    }
    return false;
  }

  /// Numbers in the blocks.
  [[nodiscard]] std::int64_t count() const {
    return std::ssize(places_) + std::ssize(blocks_[0].places) + std::ssize(blocks_[1].places);
  }

  /// Moves full blocks to `values`; returns these and a copy of the rest.
  std::vector<double> collect(std::vector<double>& values) {
    follow_current_stream();
    flush();
    take(blocks_[filling_], values);  // the older one
    take(blocks_[1 - filling_], values);
    auto all = values;
    const AllowTransfers certain;
    append(all, blocks_[filling_].on_device.narrow(0, 0, written()).to(at::kCPU), places_);
    return all;
  }

 private:
  struct Block {
    at::Tensor on_device, on_host;
    EventPointer copied;               // recorded after the copy to the host
    std::vector<std::int32_t> places;  // as places_, of the copy under way; none: there is none
  };
  static constexpr std::int32_t k_pending = -1;  // the place of a value that is not written yet

  static void append(std::vector<double>& values, const at::Tensor& block,
                     const std::vector<std::int32_t>& places) {
    const auto numbers = block.to(at::kDouble);
    // Not const_data_ptr<double>(): Clang, from 18 on, names it otherwise than GCC, which built
    // LibTorch.
    const auto* const begin = static_cast<const double*>(numbers.const_data_ptr());
    auto next = values.size();
    values.resize(next + places.size());
    for (const auto place : places) values[next++] = begin[place];
  }

  static void take(Block& block, std::vector<double>& values) {
    if (block.places.empty()) return;
    block.copied->synchronize();
    append(values, block.on_host, block.places);
    block.places.clear();
  }

  // How many values the block has; the pending ones come after them.
  [[nodiscard]] std::int64_t written() const { return std::ssize(places_) - std::ssize(pending_); }

  // Writes the pending values to the block: for each dtype by a kernel for each 128 and one more.
  void flush() {
    if (pending_.empty()) return;
    const at::AutoDispatchBelowADInplaceOrView detached;
    const c10::StreamGuard current(stream_);
    std::vector<std::int32_t> places(pending_.size());
    auto next = static_cast<std::int32_t>(written());
    for (const auto& group : buckets(pending_)) {  // of one dtype each
      blocks_[filling_]
          .on_device.narrow(0, next, std::ssize(group))
          .copy_(flatten(select(pending_, group)));
      for (const auto i : group) places[i] = next++;
    }
    auto known = places.begin();
    for (auto& place : places_) {
      if (place == k_pending) place = *known++;
    }
    pending_.clear();
  }

  // Work of the previous stream comes first, and the memory is not reused before this stream is
  // done with it.
  void follow_current_stream() {
    const auto stream = guard_.getStream(stream_.device());
    if (is_captured(stream)) {
      throw ArgumentError(
          "MetricLog: a CUDA graph is being captured, and each of its replays would use the same "
          "place of the log. Capture what computes the value; call push and values outside, after "
          "each replay.");
    }
    if (stream == stream_) return;
    flush();  // in their own stream, in which their memory is reused
    const c10::DeviceGuard current(stream.device());
    c10::Event so_far(stream.device_type());
    so_far.record(stream_);
    so_far.block(stream);
    for (const auto& block : blocks_)
      guard_.recordDataPtrOnStream(block.on_device.storage().data_ptr(), stream);
    stream_ = stream;
  }

  std::size_t size_;
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream stream_;  // which the log used last
  std::array<Block, 2> blocks_;
  std::size_t filling_ = 0;
  // Of the block that is being filled:
  std::vector<std::int32_t> places_;  // of each value, in the order of the pushes
  std::vector<at::Tensor> pending_;   // pushed and not yet written
};

MetricLog::MetricLog(c10::Device device, std::int64_t block_size)
    : device_(detail::present_device(device)) {
  if (block_size < 1 || block_size > k_largest_block) {
    throw ArgumentError("MetricLog: a block of " + std::to_string(block_size) +
                        " numbers was requested; use 1 to 134217728 (2^27), or omit it.");
  }
  if (!device_.is_cpu()) blocks_ = std::make_unique<detail::MetricBlocks>(device_, block_size);
}
MetricLog::~MetricLog() {
  if (detail::is_exiting()) static_cast<void>(blocks_.release());
}
MetricLog::MetricLog(MetricLog&& other) noexcept = default;
MetricLog& MetricLog::operator=(MetricLog&& other) noexcept = default;

void MetricLog::push(const at::Tensor& value) {
  check(value, device_);
  if (!blocks_) return values_.push_back(value.item().toDouble());
  blocks_->push(value, /*may_keep=*/false, values_);
}

void MetricLog::push(at::Tensor&& value) {
  if (!blocks_) return push(std::as_const(value));
  check(value, device_);
  if (blocks_->push(value, is_unshared(value), values_)) value.reset();
}

std::int64_t MetricLog::size() const {
  return static_cast<std::int64_t>(values_.size()) + (blocks_ ? blocks_->count() : 0);
}

std::vector<double> MetricLog::values() { return blocks_ ? blocks_->collect(values_) : values_; }

}  // namespace use_gpu
