// SPDX-License-Identifier: MIT
#include "queue.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "devices.hpp"
#include "errors.hpp"
#include "interface.hpp"

namespace simulate_gpus {
namespace {

struct Failed {
  cudaError_t code;
  std::string text;
};

// Of all queues. Never destroyed: they are used until the very end of a process.
struct State {
  std::mutex mutex;
  std::condition_variable finished;
  // Of each device and queue the last that nobody was told.
  std::map<std::pair<int, const Queue*>, Failed> failures;
};

State& state() {
  static auto* const state = new State;
  return *state;
}

// How many works this thread is in: work of one queue may wait for another queue.
thread_local int works_entered = 0;

}  // namespace

void Queue::submit(Work work) {
  const std::scoped_lock lock(state().mutex);
  work_.push_back(std::move(work));
  ++submitted_;
}

bool Queue::renew() {
  const std::scoped_lock lock(state().mutex);
  if (is_running_ || work_.size() != 1 || work_.front()) return false;
  ++finished_;
  ++submitted_;
  return true;
}

std::uint64_t Queue::end() const {
  const std::scoped_lock lock(state().mutex);
  return submitted_;
}

bool Queue::is_finished(std::uint64_t place) const {
  const std::scoped_lock lock(state().mutex);
  return finished_ >= place;
}

void Queue::advance(std::uint64_t place) {
  std::unique_lock lock(state().mutex);
  while (finished_ < place) {
    if (is_running_) {
      state().finished.wait(lock);
      continue;
    }
    if (!work_.front()) {
      work_.pop_front();
      ++finished_;
      continue;
    }
    is_running_ = true;
    Work work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    std::optional<Failed> failure;
    std::optional<NotYet> blocked;
    ++works_entered;
    try {
      work();
    } catch (NotYet& not_yet) {
      blocked = std::move(not_yet);
    } catch (const WorkFailure& error) {
      failure = Failed{error.code, error.what()};
    } catch (const std::exception& error) {
      failure = Failed{cudaErrorLaunchFailure, error.what()};
      failure->text.resize(
          std::min(failure->text.find('\n'), failure->text.size()));  // no backtrace
    }
    --works_entered;
    lock.lock();
    if (failure) state().failures[{device_, this}] = std::move(*failure);
    is_running_ = false;
    if (blocked) {
      work_.push_front(std::move(work));
    } else {
      ++finished_;
    }
    state().finished.notify_all();
    if (blocked) throw std::move(*blocked);
    // What it holds may be freed by a call of this runtime: without the lock, and out of the queue.
    lock.unlock();
    work = nullptr;
    lock.lock();
  }
}

void Queue::finish(std::uint64_t place) {
  while (true) {
    try {
      return advance(place);
    } catch (const NotYet& not_yet) {
      if (works_entered > 0) throw;
      not_yet.wait();
    }
  }
}

bool Queue::try_finish(std::uint64_t place) {
  try {
    advance(place);
    return true;
  } catch (const NotYet&) {
    return false;
  }
}

cudaError_t take_failure() {
  if (const cudaError_t refused = unreported_refusal()) return refused;
  const std::scoped_lock lock(state().mutex);
  auto& failures = state().failures;
  if (failures.empty()) return cudaSuccess;
  const int device = current_device();
  auto first = failures.lower_bound({device, nullptr});
  if (first == failures.end() || first->first.first != device) first = failures.begin();
  const Failed failed = failures.extract(first).mapped();
  return fail(failed.code, failed.text);
}

}  // namespace simulate_gpus
