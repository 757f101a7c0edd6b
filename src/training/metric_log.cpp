// SPDX-License-Identifier: MIT
#include <use_gpu/metric_log.hpp>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <use_gpu/allow_transfers.hpp>
#include <use_gpu/tensor.hpp>

#include <array>
#include <utility>

#include "core/copies/flat_buffers.hpp"
#include "core/device_check.hpp"
#include "core/device_cuda.hpp"

namespace USE_GPU_EXPORT use_gpu {
namespace {

constexpr std::int64_t k_largest_block = std::int64_t{1} << 27;  // the two take 2 GB of the host

bool is_real_number(const at::Tensor& x) {
  return x.defined() && x.layout() == c10::kStrided && !x.is_nested() && x.numel() == 1 &&
         x.scalar_type() != at::kFloat4_e2m1fn_x2 &&  // two numbers, which LibTorch cannot convert
         (at::isFloatingType(x.scalar_type()) ||
          at::isIntegralType(x.scalar_type(), /*includeBool=*/true));
}

void check(const at::Tensor& value, c10::Device device) {
  if (!is_real_number(value)) {
    throw ArgumentError("MetricLog::push: one real number was expected, found " + describe(value) +
                        ". Reduce it first, for example with x.mean(), or give it a value.");
  }
  if (value.device() != device) {
    throw DeviceMismatch("MetricLog::push: the log is on " + device.str() + ", value is " +
                         describe(value) +
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

// A block of numbers on the device. The copied ones are written to it at once, the kept ones when it is full;
// then it is copied to the host while it is filled again, later in the stream. The host's memory lives as long
// as the log: as it is freed, in a destructor, LibTorch ends the program if the device has failed.
class detail::MetricBlocks {
 public:
  MetricBlocks(c10::Device device, std::int64_t size)
      : guard_(device.type()), stream_(guard_.getStream(device)) {
    const c10::InferenceMode written_in_any_mode(false);
    numbers_ =
        at::empty({size}, at::device(device).dtype(device.is_mps() ? at::kFloat : at::kDouble));
    for (auto& block : on_host_) {
      block.numbers = at::empty({size}, numbers_.options().device(at::kCPU).pinned_memory(true));
      block.copied.reset(new c10::Event(device.type()));
    }
  }

  /// Keeps the number, or a copy of one that somebody else can write to. `values` gets what has
  /// arrived on the host.
  void push(const at::Tensor& value, bool is_shared, std::vector<double>& values) {
    follow_current_stream();
    if (std::ssize(order_) + std::ssize(kept_) == numbers_.numel()) send(values);
    const at::AutoDispatchBelowADInplaceOrView detached;
    if (is_shared) {
      const auto begin = std::ssize(order_) * numbers_.element_size();
      memory_view(numbers_, begin, numbers_.scalar_type(), value.sizes(), value.strides())
          .copy_(value);
      order_.push_back(order_.size() + kept_.size());
    } else {
      // The memory is not used again before this stream is done with it.
      guard_.recordDataPtrOnStream(value.storage().data_ptr(), stream_);
      kept_.emplace_back(flat_view(value, value.scalar_type()), order_.size() + kept_.size());
    }
  }

  /// Numbers that are not in the values yet.
  [[nodiscard]] std::size_t count() const {
    return order_.size() + kept_.size() + on_host_[0].order.size() + on_host_[1].order.size();
  }

  /// Moves all that is under way to `values`; returns these and a copy of the rest.
  std::vector<double> collect(std::vector<double>& values) {
    follow_current_stream();
    take(on_host_[next_], values);  // the older one
    take(on_host_[1 - next_], values);
    auto all = values;
    complete();
    if (order_.empty()) return all;
    const AllowTransfers certain;
    append(all, numbers_.narrow(0, 0, std::ssize(order_)).to(at::kCPU), order_);
    return all;
  }

 private:
  using Order = std::vector<std::size_t>;  // which push each number of a block is of
  struct Block {
    at::Tensor numbers;
    Order order;          // none: no copy is under way
    EventPointer copied;  // recorded after the copy
  };

  static void append(std::vector<double>& values, const at::Tensor& numbers, const Order& order) {
    const auto doubles = numbers.to(at::kDouble);
    // Not const_data_ptr<double>(): Clang, from 18 on, names it otherwise than GCC, which built
    // LibTorch.
    const auto* const begin = static_cast<const double*>(doubles.const_data_ptr());
    const auto first = values.size();
    values.resize(first + order.size());
    for (std::size_t i = 0; i < order.size(); ++i) values[first + order[i]] = begin[i];
  }

  static void take(Block& block, std::vector<double>& values) {
    if (block.order.empty()) return;
    block.copied->synchronize();
    append(values, block.numbers, block.order);
    block.order.clear();
  }

  // Writes what is kept behind the rest: for each dtype by a kernel for each 128 and one more.
  void complete() {
    const at::AutoDispatchBelowADInplaceOrView detached;
    std::vector<at::Tensor> kept;
    for (const auto& [number, push] : kept_) kept.push_back(number);
    auto order = order_;
    for (const auto& group : buckets(kept)) {  // of one dtype each
      numbers_.narrow(0, std::ssize(order), std::ssize(group)).copy_(flatten(select(kept, group)));
      for (const auto i : group) order.push_back(kept_[i].second);
    }
    order_ = std::move(order);
    kept_.clear();
  }

  void send(std::vector<double>& values) {
    auto& block = on_host_[next_];
    take(block, values);
    complete();
    // Recording an event of another device would create a CUDA context on the current one.
    const c10::DeviceGuard current(stream_.device());
    const AllowTransfers certain;
    block.numbers.copy_(numbers_, /*non_blocking=*/true);
    block.copied->record(stream_);
    block.order = std::exchange(order_, {});
    next_ = 1 - next_;
  }

  // Work of the previous stream comes first.
  void follow_current_stream() {
    const auto stream = guard_.getStream(stream_.device());
    if (is_captured(stream)) {
      throw ArgumentError(
          "MetricLog: a CUDA graph is being captured, and each of its replays would use the same "
          "place of the log. Capture what computes the value; call push and values outside, after "
          "each replay.");
    }
    if (stream == stream_) return;
    const c10::DeviceGuard current(stream.device());
    c10::Event so_far(stream.device_type());
    so_far.record(stream_);
    so_far.block(stream);
    for (const auto& [x, push] : kept_)
      guard_.recordDataPtrOnStream(x.storage().data_ptr(), stream);
    guard_.recordDataPtrOnStream(numbers_.storage().data_ptr(), stream);
    stream_ = stream;
  }

  c10::impl::VirtualGuardImpl guard_;
  c10::Stream stream_;  // which the log used last
  at::Tensor numbers_;  // the block
  Order order_;
  std::vector<std::pair<at::Tensor, std::size_t>> kept_;  // each with its push
  std::array<Block, 2> on_host_;
  std::size_t next_ = 0;
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
  blocks_->push(value, /*is_shared=*/true, values_);
}

void MetricLog::push(at::Tensor&& value) {
  check(value, device_);
  if (!blocks_ || !is_unshared(value)) return push(std::as_const(value));
  blocks_->push(value, /*is_shared=*/false, values_);
  value.reset();
}

std::int64_t MetricLog::size() const {
  return static_cast<std::int64_t>(values_.size() + (blocks_ ? blocks_->count() : 0));
}

std::vector<double> MetricLog::values() { return blocks_ ? blocks_->collect(values_) : values_; }

}  // namespace use_gpu
