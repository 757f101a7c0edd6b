// SPDX-License-Identifier: MIT
//
// The range that prefetch() returns (prefetch.hpp). Nothing to call.
#pragma once

#include <use_gpu/batch.hpp>

#include <deque>
#include <exception>
#include <iterator>
#include <memory>

namespace use_gpu::detail {

/// Sends tensors to a device in a stream of its own.
class USE_GPU_EXPORT Sender {
 public:
  /// ArgumentError for a depth below 1, DeviceError if the device is not there.
  Sender(c10::Device device, int depth);

  /// How many batches may be ahead: none where they pass unchanged.
  [[nodiscard]] int depth() const { return depth_; }

  /// A copy of x on the device, with the values that x has now; on the CPU as to_device. Through
  /// pinned memory and without waiting if x is on the host.
  at::Tensor send(const at::Tensor& x);

  /// What was sent since the last call. Its destruction waits for nothing.
  struct Sent;
  std::shared_ptr<Sent> sent();

  /// Lets the device's current stream wait for it, and its memory be kept until that stream is done
  /// with it. Does not wait.
  void receive(Sent& sent) const;

  /// Whether the program is ending, and LibTorch may no longer free what a stream used.
  static bool is_exiting() noexcept;

 private:
  c10::Device device_;
  int depth_ = 0;
  std::optional<c10::Stream> stream_;  // none on the CPU
  std::shared_ptr<Sent> next_;
};

/// The range that prefetch() returns; each begin() starts the loader anew.
template <class Loader>
class Prefetch {
 public:
  using Source = decltype(std::begin(std::declval<Loader&>()));
  using Batch = std::remove_cvref_t<decltype(*std::declval<Source&>())>;

  Prefetch(Loader& loader, c10::Device device, int depth)
      : loader_(loader), device_(device), sender_(device, depth) {}
  ~Prefetch() {  // what is under way is left to the program's end: LibTorch may be gone
    if (Sender::is_exiting()) static_cast<void>(new auto(std::move(queue_)));
  }
  Prefetch(const Prefetch&) = delete;

  class Iterator {
   public:
    using difference_type = std::ptrdiff_t;
    using value_type = Batch;

    explicit Iterator(Prefetch* range) : range_(range) {}
    Batch& operator*() const { return range_->queue_.front().batch; }
    Batch* operator->() const { return &**this; }
    Iterator& operator++() {
      range_->queue_.pop_front();
      range_->advance();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return range_->queue_.empty(); }

   private:
    Prefetch* range_;
  };

  Iterator begin() {
    queue_.clear();
    error_ = nullptr;
    is_started_ = false;
    source_.emplace(std::begin(loader_));
    advance();
    return Iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  struct Entry {
    Batch batch;
    std::shared_ptr<Sender::Sent> sent;
  };

  // Sends batches until so many are under way; then hands over the first.
  void advance() {
    while (std::ssize(queue_) <= sender_.depth() && source_) fetch();
    if (!queue_.empty()) return sender_.receive(*queue_.front().sent);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  void fetch() {
    try {
      if (std::exchange(is_started_, true)) ++*source_;
      if (*source_ == std::end(loader_)) return source_.reset();
      const auto send = [this](const at::Tensor& x) { return sender_.send(x); };
      auto batch = with_each_tensor(static_cast<const Batch&>(**source_),
                                    BatchMover<decltype(send)>{device_, send});
      queue_.push_back({std::move(batch), sender_.sent()});
    } catch (...) {
      error_ = std::current_exception();
      static_cast<void>(sender_.sent());  // what was sent of the failed batch
      source_.reset();
    }
  }

  Loader& loader_;
  c10::Device device_;
  Sender sender_;
  std::optional<Source> source_;  // none once it is over
  bool is_started_ = false;
  std::deque<Entry> queue_;   // the batch that is out, and those under way
  std::exception_ptr error_;  // of the loader, after these
};

}  // namespace use_gpu::detail
