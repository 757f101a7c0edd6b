// SPDX-License-Identifier: MIT
#include "queue.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include "errors.hpp"

namespace simulated_cuda {
namespace {

// Of all queues. Never destroyed: they are used until the very end of a process.
struct State {
  std::mutex mutex;
  std::condition_variable finished;
  std::string failure;
};

State& state() {
  static auto* const state = new State;
  return *state;
}

}  // namespace

void Queue::submit(Work work) {
  const std::scoped_lock lock(state().mutex);
  work_.push_back(std::move(work));
  ++submitted_;
}

std::uint64_t Queue::end() const {
  const std::scoped_lock lock(state().mutex);
  return submitted_;
}

bool Queue::is_finished(std::uint64_t place) const {
  const std::scoped_lock lock(state().mutex);
  return finished_ >= place;
}

void Queue::finish(std::uint64_t place) {
  std::unique_lock lock(state().mutex);
  while (finished_ < place) {
    if (is_running_) {
      state().finished.wait(lock);
      continue;
    }
    is_running_ = true;
    Work work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    std::string failure;
    try {
      work();
    } catch (const std::exception& error) {
      failure = error.what();
      failure.resize(std::min(failure.find('\n'), failure.size()));  // no backtrace
    }
    work = nullptr;  // what it holds is freed without the lock
    lock.lock();
    if (!failure.empty()) state().failure = std::move(failure);
    is_running_ = false;
    ++finished_;
    state().finished.notify_all();
  }
}

cudaError_t take_failure() {
  if (const cudaError_t refused = unreported_refusal()) return refused;
  const std::scoped_lock lock(state().mutex);
  if (state().failure.empty()) return cudaSuccess;
  return fail(cudaErrorLaunchFailure, std::exchange(state().failure, {}));
}

}  // namespace simulated_cuda
