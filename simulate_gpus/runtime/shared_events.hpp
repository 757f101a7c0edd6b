// SPDX-License-Identifier: MIT
//
// Events that processes share (cudaEventInterprocess). Work stays in its stream until something needs it, also here: who
// waits for an event that another process has recorded asks that process for it, where a thread does the work.
#pragma once

#include <driver_types.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "queue.hpp"
#include "shared_slots.hpp"

namespace simulate_gpus {

class SharedEvent : public std::enable_shared_from_this<SharedEvent> {
 public:
  /// A new one; null if there is no room for it.
  static std::shared_ptr<SharedEvent> make();
  /// One of another process; null if it is gone.
  static std::shared_ptr<SharedEvent> open(const SlotName& name);

  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  [[nodiscard]] const SlotName& name() const { return name_; }

  /// It is the moment after all that the stream was given, for all processes.
  Moment record(CUstream_st& stream);

  [[nodiscard]] bool is_recorded() const;

  /// The moment at which a process, here or elsewhere, has recorded it last.
  [[nodiscard]] Moment last() const;

  /// Another process that has recorded it last does its work soon, as a GPU does by itself: it may end before
  /// somebody needs the work.
  void hasten() const;

 private:
  SharedEvent(const SlotName& name, SharedSlot& slot) : name_(name), slot_(slot) {}

  SlotName name_;
  SharedSlot& slot_;
  std::mutex mutex_;
  std::uint64_t record_ = 0;  // the last one of this process, as the slot tells it
  Moment moment_;             // in its stream
};

/// From now on a thread does the work for which other processes ask.
void serve_others();

}  // namespace simulate_gpus
