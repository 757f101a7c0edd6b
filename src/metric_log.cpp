// SPDX-License-Identifier: MIT
#include <use_gpu/metric_log.hpp>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <use_gpu/errors.hpp>
#include <use_gpu/transfers.hpp>

#include <array>
#include <map>
#include <numeric>
#include <utility>

#include "copies/memory_view.hpp"
#include "device/device_check.hpp"
#include "device/device_cuda.hpp"
#include "device/device_event.hpp"
#include "messages/message.hpp"
#include "messages/tensor_summary.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

constexpr std::int64_t k_largest_block = std::int64_t{1} << 27;  // the two take 2 GB

void check_block_size(std::int64_t block_size) {
  if (block_size >= 1 && block_size <= k_largest_block) return;
  throw ArgumentError("MetricLog: a block of " + std::to_string(block_size) +
                      " numbers was requested; use 1 to 134217728 (2^27), or omit it.");
}

bool is_real_number(const at::Tensor& x) {
  return x.defined() && x.layout() == c10::kStrided && x.numel() == 1 &&
         x.scalar_type() != at::kFloat4_e2m1fn_x2 &&  // two numbers, which LibTorch cannot convert
         (at::isFloatingType(x.scalar_type()) ||
          at::isIntegralType(x.scalar_type(), /*includeBool=*/true));
}

[[noreturn]] void throw_no_number(const at::Tensor& x) {
  throw ArgumentError("MetricLog::push: one real number was expected, found " +
                      detail::clipped(detail::summary(x), 100) +
                      ". Reduce it first, for example with x.mean(), or give it a value.");
}

[[noreturn]] void throw_elsewhere(const at::Tensor& x, c10::Device device) {
  throw DeviceMismatch(
      "MetricLog::push: the log is on " + device.str() + ", value is " + detail::summary(x) +
      ". Make the log where the values are computed: " + "use_gpu::MetricLog log(value.device()).");
}

void check(const at::Tensor& value, c10::Device device) {
  if (!is_real_number(value)) throw_no_number(value);
  if (value.device() != device) throw_elsewhere(value, device);
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

void check_not_captured(c10::Stream stream) {
  if (!detail::is_captured(stream)) return;
  throw ArgumentError(
      "MetricLog: a CUDA graph is being captured, and each of its replays would use the same "
      "place of the log. Capture what computes the value; call push and values outside, after "
      "each replay.");
}

}  // namespace

// Two blocks on the device are filled in turn, each with pinned memory on the host to be copied to.
// The copy goes into the stream that fills the block, so the device cannot fill it again too early;
// the host reads its memory after an event. Kept values are written to the block together, later
// than others that were pushed after them: so each block knows which value is where.
class detail::MetricBlocks {
 public:
  MetricBlocks(c10::Device device, std::int64_t size)
      : size_(size), guard_(device.type()), stream_(guard_.getStream(device)) {
    const c10::InferenceMode written_in_any_mode(false);
    const auto numbers = at::TensorOptions(device.is_mps() ? at::kFloat : at::kDouble);
    for (auto& block : blocks_) {
      block.on_device = at::empty({size}, numbers.device(device));
      block.on_host = at::empty({size}, numbers.device(at::kCPU).pinned_memory(true));
      block.copied.reset(new c10::Event(device.type()));
    }
  }

  void push(const at::Tensor& value, std::vector<double>& values) {
    follow_current_stream();
    auto& block = blocks_[filling_];
    const bool is_last = pushed_ + 1 == size_;
    if (is_last) write_kept();
    if (!places_.empty()) make_room();
    {
      const at::AutoDispatchBelowADInplaceOrView detached;
      const auto place = block.on_device.select(0, written_);
      if (value.dim() == 0) {
        place.copy_(value);
      } else {
        place.copy_(value.reshape({}));
      }
    }
    if (is_last) {
      take(block, values);
      start_copy(block);
    }
    if (!places_.empty()) places_.push_back(static_cast<std::int32_t>(written_));
    ++written_;
    ++pushed_;
    if (!is_last) return;
    block.places.swap(places_);  // an empty one
    filling_ = 1 - filling_;
    written_ = 0;
    pushed_ = 0;
  }

  /// Keeps the value's storage until the block is full. Returns whether it could: not the last
  /// value of a block.
  bool keep(const at::Tensor& value) {
    follow_current_stream();
    // It may come from another stream, which else gets its memory back before this one has read it.
    guard_.recordDataPtrOnStream(value.storage().data_ptr(), stream_);
    if (pushed_ + 1 == size_) return false;
    const auto number = static_cast<std::size_t>(pushed_);
    if (places_.empty()) {
      places_.resize(number);
      std::iota(places_.begin(), places_.end(), 0);
    }
    make_room();
    const auto integer = integer_of(value.element_size());
    kept_.push_back(
        {memory_view(value, begin_of(value), integer, {1}, {1}), value.scalar_type(), number});
    places_.push_back(0);  // until it is written
    ++pushed_;
    return true;
  }

  /// Numbers in the blocks.
  [[nodiscard]] std::int64_t count() const {
    return pushed_ + size_ * (int{blocks_[0].is_under_way} + int{blocks_[1].is_under_way});
  }

  /// Moves full blocks to `values`; returns these and a copy of the rest.
  std::vector<double> collect(std::vector<double>& values) {
    follow_current_stream();
    write_kept();
    take(blocks_[filling_], values);  // the older one
    take(blocks_[1 - filling_], values);
    auto all = values;
    if (written_ > 0) {
      const AllowTransfers certain;
      append(all, blocks_[filling_].on_device.narrow(0, 0, written_).to(at::kCPU), places_);
    }
    return all;
  }

 private:
  struct Block {
    at::Tensor on_device, on_host;
    EventPointer copied;               // recorded after the copy to the host
    std::vector<std::int32_t> places;  // as places_, when it was filled
    bool is_under_way = false;
  };
  struct Kept {
    at::Tensor memory;  // as an integer: not every dtype can be concatenated
    at::ScalarType dtype;
    std::size_t number;  // in its block
  };

  static void append(std::vector<double>& values, const at::Tensor& block,
                     const std::vector<std::int32_t>& places) {
    const auto numbers = block.to(at::kDouble);
    // Not const_data_ptr<double>(): Clang, from 18 on, names it otherwise than GCC, which built
    // LibTorch.
    const auto* const begin = static_cast<const double*>(numbers.const_data_ptr());
    if (places.empty()) {
      values.insert(values.end(), begin, begin + numbers.numel());
      return;
    }
    values.reserve(values.size() + places.size());
    for (const auto place : places) values.push_back(begin[place]);
  }

  static void take(Block& block, std::vector<double>& values) {
    if (!block.is_under_way) return;
    block.copied->synchronize();
    append(values, block.on_host, block.places);
    block.places.clear();
    block.is_under_way = false;
  }

  // Here and below: recording or waiting for an event of another device would create a CUDA context
  // on the current one.
  void start_copy(Block& block) {
    const c10::DeviceGuard current(stream_.device());
    const AllowTransfers certain;
    block.on_host.copy_(block.on_device, /*non_blocking=*/true);
    block.copied->record(stream_);
    block.is_under_way = true;
  }

  // So that the next push_back cannot fail.
  void make_room() {
    if (places_.size() == places_.capacity()) places_.reserve(2 * places_.size() + 16);
  }

  static at::ScalarType integer_of(std::int64_t bytes) {
    if (bytes == 8) return at::kLong;
    if (bytes == 4) return at::kInt;
    return bytes == 2 ? at::kShort : at::kByte;
  }

  // Writes the kept values to the block: for each dtype by a kernel for each 128 and one more.
  void write_kept() {
    if (kept_.empty()) return;
    const at::AutoDispatchBelowADInplaceOrView detached;
    const c10::StreamGuard current(stream_);
    std::map<at::ScalarType, std::vector<at::Tensor>> memory;
    for (const auto& kept : kept_) memory[kept.dtype].push_back(kept.memory);
    std::map<at::ScalarType, std::int64_t> place;
    auto end = written_;
    for (const auto& [dtype, of_dtype] : memory) {
      place[dtype] = end;
      const auto count = static_cast<std::int64_t>(of_dtype.size());
      blocks_[filling_].on_device.narrow(0, end, count).copy_(at::cat(of_dtype).view(dtype));
      end += count;
    }
    for (const auto& kept : kept_) {
      places_[kept.number] = static_cast<std::int32_t>(place[kept.dtype]++);
    }
    written_ = end;
    kept_.clear();
  }

  void follow_current_stream() {
    const auto stream = guard_.getStream(stream_.device());
    check_not_captured(stream);
    if (stream != stream_) move_to(stream);
  }

  // Work of the previous stream comes first, and the memory is not reused before this stream is
  // done with it.
  void move_to(c10::Stream stream) {
    write_kept();  // in their own stream, in which their memory is reused
    const c10::DeviceGuard current(stream.device());
    c10::Event so_far(stream.device_type());
    so_far.record(stream_);
    so_far.block(stream);
    for (const auto& block : blocks_) {
      guard_.recordDataPtrOnStream(block.on_device.storage().data_ptr(), stream);
    }
    stream_ = stream;
  }

  std::int64_t size_;
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream stream_;  // which the log used last
  std::array<Block, 2> blocks_;
  std::size_t filling_ = 0;
  // Of the block that is being filled:
  std::int64_t pushed_ = 0;
  std::int64_t written_ = 0;
  std::vector<Kept> kept_;            // pushed and not yet written
  std::vector<std::int32_t> places_;  // of each value, in the order of the pushes; empty: in order
};

MetricLog::MetricLog(c10::Device device, std::int64_t block_size)
    : device_(detail::present_device(device)) {
  check_block_size(block_size);
  if (!device_.is_cpu()) blocks_ = std::make_unique<detail::MetricBlocks>(device_, block_size);
}
MetricLog::~MetricLog() {
  if (detail::is_exiting()) static_cast<void>(blocks_.release());
}
MetricLog::MetricLog(MetricLog&& other) noexcept = default;
MetricLog& MetricLog::operator=(MetricLog&& other) noexcept = default;

void MetricLog::push(const at::Tensor& value) {
  check(value, device_);
  if (blocks_) {
    blocks_->push(value, values_);
  } else {
    values_.push_back(value.item().toDouble());
  }
}

void MetricLog::push(at::Tensor&& value) {
  check(value, device_);
  if (blocks_ && is_unshared(value) && blocks_->keep(value)) {
    value.reset();
  } else {
    push(std::as_const(value));
  }
}

std::int64_t MetricLog::size() const {
  return static_cast<std::int64_t>(values_.size()) + (blocks_ ? blocks_->count() : 0);
}

std::vector<double> MetricLog::values() { return blocks_ ? blocks_->collect(values_) : values_; }

}  // namespace use_gpu
