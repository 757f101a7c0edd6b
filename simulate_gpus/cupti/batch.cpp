// SPDX-License-Identifier: MIT
#include "cupti/batch.hpp"

#include <algorithm>
#include <utility>

#include "cupti/buffers.hpp"
#include "cupti/kinds.hpp"

namespace simulate_gpus::cupti {

void Batch::add(DeviceRecord record) {
  const std::scoped_lock lock(mutex_);
  records_.push_back(record);
}

// Work that cannot be done yet throws, and is tried again: it has begun at the first time.
std::function<void()> Batch::wrap(std::function<void()> work) {
  const std::scoped_lock lock(mutex_);
  ++works_left_;
  return [batch = shared_from_this(), work = std::move(work)] {
    batch->begin();
    work();
    batch->end();
  };
}

void Batch::close() {
  const std::scoped_lock lock(mutex_);
  is_closed_ = true;
  given_ = now();
  write();
}

void Batch::begin() {
  const std::scoped_lock lock(mutex_);
  begin_of_work_ = now();
  if (begin_ == 0) begin_ = last_call_of_ending() ? given_ : begin_of_work_;
}

// What nobody has waited for until the recording ends would be later than the recording, which Kineto does not show: it
// follows its call, and ends with the last call at the latest.
void Batch::end() {
  const std::scoped_lock lock(mutex_);
  --works_left_;
  const std::uint64_t time = now();
  if (const auto last_call = last_call_of_ending()) {
    end_ = std::max({given_, begin_, end_}) + time - begin_of_work_;
    end_ = std::min(end_, std::max(given_, *last_call));
    begin_ = std::min(begin_, end_);
  } else {
    end_ = time;
  }
  write();
}

// Several records share the time, as nobody knows which of them took how much.
void Batch::write() {
  if (!is_closed_ || works_left_ > 0 || records_.empty()) return;
  if (begin_ == 0) begin_ = end_ = now();  // nothing was to be done
  Block block = origin_.block();
  const std::uint64_t each = (end_ - begin_) / records_.size();
  for (DeviceRecord& record : std::exchange(records_, {})) {
    add_with_times(block, record, begin_, begin_ + each);
    begin_ += each;
  }
  if (is_any_enabled()) emit(block);
}

}  // namespace simulate_gpus::cupti
