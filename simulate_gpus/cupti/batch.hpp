// SPDX-License-Identifier: MIT
//
// What one call, or one step of a graph, has a stream do. It is recorded when the stream has done it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "cupti/device_records.hpp"
#include "cupti/origin.hpp"

namespace simulate_gpus::cupti {

class Batch : public std::enable_shared_from_this<Batch> {
 public:
  explicit Batch(Origin origin) : origin_(std::move(origin)) {}

  void add(DeviceRecord record);

  /// The same work, whose times are those of the records: of several from the first one's beginning to the last one's end.
  std::function<void()> wrap(std::function<void()> work);

  /// No more will be added.
  void close();

 private:
  void begin();
  void end();
  void write();

  std::mutex mutex_;  // guards the rest
  Origin origin_;
  std::vector<DeviceRecord> records_;
  std::size_t works_left_ = 0;
  bool is_closed_ = false;
  std::uint64_t given_ = 0, begin_ = 0, end_ = 0;
  std::uint64_t begin_of_work_ = 0;
};

}  // namespace simulate_gpus::cupti
